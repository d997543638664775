"""Stop strings: cut a text at the first stop, whatever the token borders are.

Text goes in by `feed`, safe text comes out. A tail is held back only while it could still be the start of a stop
string. Pure: no clock, no I/O, no tokens.

Invariant: all output joined is the text up to the stop that is complete first; between stops that are complete at the
same character it is the longest one.
"""

from collections.abc import Sequence

TRIED_CHARS = 1000
"""Up to here each length is tried; a longer stop that a reply follows for long and then leaves is counted out."""


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
        return max((_overlap_chars(stop, text) for stop in self._stops), default=0)


def _overlap_chars(stop: str, text: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    longest = min(len(stop) - 1, len(text))
    if text.endswith(stop[:longest]):
        return longest
    if longest > TRIED_CHARS:
        return _counted_overlap_chars(stop[:longest], text[-longest:])
    return next((size for size in range(longest - 1, 0, -1) if text.endswith(stop[:size])), 0)


def _counted_overlap_chars(start: str, text: str) -> int:
    """The same by Knuth, Morris and Pratt, where trying each length would take quadratic time: one step a character."""
    borders = [0]  # for each beginning of `start`: the longest proper one of its beginnings that it ends with
    matched = 0
    for character in start[1:]:
        while matched and character != start[matched]:
            matched = borders[matched - 1]
        matched += character == start[matched]
        borders.append(matched)
    matched = 0
    for character in text:
        while matched and (matched == len(start) or character != start[matched]):
            matched = borders[matched - 1]
        matched += character == start[matched]
    return matched
