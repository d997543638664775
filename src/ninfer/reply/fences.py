"""Markdown code fences: is this point of a text inside one?

Text goes in piece by piece. It knows no markup but fences. Invariant: the answer depends on the text before the point
alone, so it can be given while the text is still being written.
"""

import re

_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})")

_LINE_CHARS = 256
"""What is further right in a line is not looked at: a long line must not be read again and again."""


class FenceTracker:
    """Follows the fences of one text."""

    def __init__(self) -> None:
        self._line = ""  # the line that is not complete yet
        self._fence: str | None = None  # the run of characters that opened the fence

    def feed(self, text: str) -> None:
        """Go on by `text`."""
        *complete, line = (self._line + text).split("\n")
        for ended in complete:
            self._end_line(ended[:_LINE_CHARS])
        self._line = line[:_LINE_CHARS]

    @property
    def inside(self) -> bool:
        """Whether what comes next stands in a fence; the rest of an opening line counts."""
        return self._fence is not None or _OPENING.match(self._line) is not None

    def _end_line(self, line: str) -> None:
        opening = _OPENING.match(line)
        if self._fence is None:
            self._fence = opening and opening.group(1)
        elif opening is not None:
            run = opening.group(1)
            if run.startswith(self._fence) and not line[opening.end() :].strip():
                self._fence = None
