"""How many bytes of answers may wait for clients that read slowly, and which answer is dropped above that.

A handler never waits for its client: a generation's place is free when the engine has done its work, and what the
client has not read yet waits as bytes, which are counted here. It knows bytes and neither sockets nor protocols.

Invariant: all answers together hold no more than `all_bytes`, with two exceptions: up to `READ_BYTES` of each answer,
and a single answer that is larger alone. The answer that has been behind for longest is dropped first, so a client that
reads loses nothing.
"""

from collections.abc import Callable

import attrs
from attrs import validators

READ_BYTES = 1 << 16
"""An answer with no more unread than this is not behind; answers are written in pieces of this size."""


@attrs.define(kw_only=True)
class UnreadRoom:
    """The bounds on unread bytes for all answers of one application."""

    all_bytes: int = attrs.field(validator=validators.gt(0))
    stream_bytes: int = attrs.field(validator=validators.gt(0))
    """Most unread bytes of one stream: a client that leaves more is cut."""
    held_bytes: int = attrs.field(default=0, init=False)
    behind: "dict[Unread, None]" = attrs.field(factory=dict, init=False)
    """Answers with more than `READ_BYTES`, the one that has been so for longest first."""


@attrs.define(eq=False)
class Unread:
    """The unread bytes of one answer."""

    _room: UnreadRoom
    _cut: Callable[[int], None]
    """Gives the answer up; its argument is the number of unread bytes."""
    held_bytes: int = attrs.field(default=0, init=False)
    _is_behind: bool = attrs.field(default=False, init=False)

    def add_to_stream(self, count_bytes: int) -> None:
        """As `add`, for an answer that is still being made: it has a bound of its own."""
        self.add(count_bytes)
        if self.held_bytes > self._room.stream_bytes:
            self._cut(self.held_bytes)

    def add(self, count_bytes: int) -> None:
        """Count more unread bytes; other answers that are behind may be dropped for them."""
        self._change(count_bytes)
        room = self._room
        while room.held_bytes > room.all_bytes and len(room.behind) > 1:
            longest = next(iter(room.behind))
            longest._cut(longest.held_bytes)
            longest.clear()

    def take(self, count_bytes: int) -> None:
        """Count bytes that have been taken. An answer that was cut has none left."""
        self._change(-min(count_bytes, self.held_bytes))

    def clear(self) -> None:
        """Nothing of this answer is held any more. Idempotent."""
        self._change(-self.held_bytes)

    def _change(self, count_bytes: int) -> None:
        self.held_bytes += count_bytes
        self._room.held_bytes += count_bytes
        if (self.held_bytes > READ_BYTES) is not self._is_behind:
            self._is_behind = not self._is_behind
            if self._is_behind:
                self._room.behind[self] = None
            else:
                del self._room.behind[self]
