"""A place in a text that is still being written.

Its steps are generators: where the text so far does not decide, they yield and wait for `feed` and `end`, so that a
parser over it reads the same whatever the pieces were. It knows no markup.
"""

import re
from collections.abc import Collection, Generator

_SPACE = re.compile(r"\s*")


class Cursor:
    """Text, and how far it has been read."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        """No more text will come."""
        self._pending: list[str] = []  # pieces not joined to the text yet
        self._only_tags = False  # the wait is for a "<"

    def feed(self, text: str) -> bool:
        """More text; whether it is of use to the step that waits."""
        self._pending.append(text)
        # A long value comes in many pieces; joining them one by one would take quadratic time.
        if self._only_tags and "<" not in text:
            return False
        self._join()
        return True

    def end(self) -> None:
        """No more text."""
        self._join()
        self.ended = True

    def more(self, *, only_tags: bool = False) -> Generator[None, None, bool]:
        """Wait for text, with `only_tags` for text in which a tag may begin; False if there is no more."""
        chars = len(self.text)
        if not self.ended:
            self._only_tags = only_tags
            yield
            self._only_tags = False
        return len(self.text) > chars

    def skip_space(self) -> Generator[None, None, bool]:
        """Go to the next character that is not white space; False if the text ends first."""
        while True:
            found = _SPACE.match(self.text, self.at)
            self.at = found.end() if found is not None else self.at
            if self.at < len(self.text):
                return True
            if not (yield from self.more()):
                return False

    def accept(self, tags: Collection[str]) -> Generator[None, None, str | None]:
        """Go past the one of `tags` that stands here; None, not moved, if none does."""
        longest = max(map(len, tags))
        while True:
            rest = self.text[self.at : self.at + longest]
            for tag in tags:
                if rest.startswith(tag):
                    self.at += len(tag)
                    return tag
            if not any(tag.startswith(rest) for tag in tags) or not (yield from self.more()):
                return None

    def _join(self) -> None:
        self.text += "".join(self._pending)
        self._pending.clear()
