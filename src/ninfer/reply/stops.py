"""Stop strings: cut a text at the first stop, whatever the token borders are.

Text goes in by `feed`, safe text comes out. A tail is held back only while it could still be the start of a stop
string. Pure: no clock, no I/O, no tokens.

Invariant: all output joined is the text up to the stop that is complete first; between stops that are complete at the
same character it is the longest one.
"""

from collections.abc import Sequence


class StopCutter:
    """Holds back the shortest tail that may begin a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops` are non-empty."""
        self._stops = tuple(stops)
        self._held = ""
        self.hit: str | None = None
        """The stop that was found; nothing is shown any more."""

    def feed(self, text: str) -> str:
        """Take new text, return the part that can be shown now."""
        if self.hit is not None:
            return ""
        text = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            _, at, self.hit = min(found)  # the stop that ends first wins: borders cannot change it
            self._held = ""
            return text[:at]
        shown = len(text) - self._tail_chars(text)
        self._held = text[shown:]
        return text[:shown]

    def finish(self) -> str:
        """The tail that turned out to begin no stop."""
        held, self._held = self._held, ""
        return held

    def _tail_chars(self, text: str) -> int:
        """Length of the longest end of `text` that is a proper beginning of a stop."""
        longest = max(map(len, self._stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            tail = text[-size:]
            if any(len(stop) > size and stop.startswith(tail) for stop in self._stops):
                return size
        return 0
