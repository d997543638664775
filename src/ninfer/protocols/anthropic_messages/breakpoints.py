"""Cache marks of a request: how many there may be, and where the one for the whole request goes (ANTH-034 to -038).

Whoever walks the prompt in its order calls `piece` for everything that a mark can stand behind, and `mark` for each
mark. It knows the order of pieces and nothing of their content.
"""

from ninfer.conversation import CachePoint, InvalidRequest
from ninfer.protocols.anthropic_messages.wire import CacheControl

MOST = 4
"""Distinct places that blocks may mark, and places that a request may mark in all (D9)."""


class Breakpoints:
    """The marks of one request so far."""

    def __init__(self) -> None:
        self._pieces = 0
        self._marked: dict[int, str] = {}
        """Pieces before a mark -> its time."""

    def piece(self) -> None:
        """Something cacheable has come."""
        self._pieces += 1

    def mark(self, path: str, control: CacheControl | None) -> tuple[CachePoint, ...]:
        """The parts that stand for the `cache_control` of the block at `path`: one, or none where one is already.

        Raises:
            InvalidRequest: it is the fifth place.
        """
        if control is None or self._pieces in self._marked:
            return ()
        if len(self._marked) == MOST:
            raise InvalidRequest(
                f"{path}.cache_control: blocks mark at most {MOST} places of a request, and this is one more",
                param=f"{path}.cache_control",
            )
        self._marked[self._pieces] = control.ttl
        return (CachePoint(),)

    def mark_end(self, control: CacheControl | None) -> tuple[CachePoint, ...]:
        """The parts for the request's own `cache_control`, which means the last piece; none where one is there.

        Raises:
            InvalidRequest: the piece is marked with another time, or all places are taken.
        """
        if control is None:
            return ()
        there = self._marked.get(self._pieces)
        if there is not None and there != control.ttl:
            raise InvalidRequest(
                f'cache_control.ttl: "{control.ttl}" contradicts "{there}" on the last block, which it means too',
                param="cache_control.ttl",
            )
        if there is None and len(self._marked) == MOST:
            raise InvalidRequest(
                f"cache_control: takes a place of its own, and blocks already mark all {MOST}", param="cache_control"
            )
        return () if there is not None else (CachePoint(),)
