"""How many bytes of answers may wait for clients that read slowly, and whose answer goes when it is too many.

A handler never waits for its client: a generation's place is free when the engine has done its work, and what the
client has not read yet waits as bytes, which are counted here. It knows bytes and neither sockets nor protocols.

Invariant: all answers together hold no more than `all_bytes`, but for what is `READ_BYTES` or less of each and for one
answer that is larger alone. Whoever has been behind for longest goes first, so a client that reads loses nothing.
"""

from collections.abc import Callable

import attrs
from attrs import validators

READ_BYTES = 1 << 16
"""Who has no more than this to read is not behind; an answer is written in pieces of this size."""


@attrs.define(kw_only=True)
class UnreadRoom:
    """What may be unread of all answers of one application."""

    all_bytes: int = attrs.field(validator=validators.gt(0))
    stream_bytes: int = attrs.field(validator=validators.gt(0))
    """Of one stream: a client that is so far behind is cut."""
    held_bytes: int = attrs.field(default=0, init=False)
    behind: "dict[Unread, None]" = attrs.field(factory=dict, init=False)
    """Answers with more than `READ_BYTES`, the one that has been so for longest first."""


@attrs.define(eq=False)
class Unread:
    """What is unread of one answer."""

    _room: UnreadRoom
    _cut: Callable[[int], None]
    """Gives the answer up, of which so many bytes are unread."""
    held_bytes: int = attrs.field(default=0, init=False)
    _is_behind: bool = attrs.field(default=False, init=False)

    def add_to_stream(self, count_bytes: int) -> None:
        """As `add`, for an answer that is still being made: it has a bound of its own."""
        self.add(count_bytes)
        if self.held_bytes > self._room.stream_bytes:
            self._cut(self.held_bytes)

    def add(self, count_bytes: int) -> None:
        """So many bytes more wait to be read; others that are behind may have to go for them."""
        self._change(count_bytes)
        room = self._room
        while room.held_bytes > room.all_bytes and len(room.behind) > 1:
            longest = next(iter(room.behind))
            longest._cut(longest.held_bytes)
            longest.clear()

    def take(self, count_bytes: int) -> None:
        """So many of them have been taken. None of an answer that was cut are left."""
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
