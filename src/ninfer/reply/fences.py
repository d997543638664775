"""Markdown code fences: is this point of a text inside one?

Text goes in piece by piece, and lines are read by CommonMark's rules for blocks: a fence may open behind markers of
quotes and lists, ends with them, and closes by an indentation of at most three columns within them; a run of back-ticks
with back-ticks behind it in its line is no fence. It knows neither what stands within a line nor HTML blocks, inside
which a fence counts all the same. Invariant: the answer depends on the text before the point alone, so it can be given
while the text is still being written.
"""

import re
from typing import TypeAlias

import attrs

_OPENING = re.compile(r"(`{3,})[^`]*$|(~{3,})")
_ITEM = re.compile(r"(?:[-+*]|(\d{1,9})[.)])(?= |$)")
_LEAF = re.compile(r"#{1,6}(?: |$)|(?:(?:\* *){3,}|(?:_ *){3,}|(?:- *){3,})$")
"""A heading or a thematic break: a block of one line that is no paragraph."""
_UNDERLINE = re.compile(r"(?:=+|-+) *$")
_CODE_COLUMNS = 4
"""From this indentation on a line begins no block."""

_LINE_CHARS = 256
"""What is further right in a line is not kept: a long line must not be read again and again."""


@attrs.frozen
class _Quote:
    """A block quote."""


@attrs.frozen
class _Item:
    """A list item."""

    columns: int
    """How far its lines are indented within what contains it."""
    empty: bool = True
    """Nothing has stood in it yet: a blank line ends it."""


_Container: TypeAlias = _Quote | _Item


@attrs.frozen(kw_only=True)
class _Blocks:
    """The blocks that are open between two lines."""

    containers: tuple[_Container, ...] = ()
    """From the outermost inwards."""
    fence: str | None = None
    """The run of characters that opened the fence, which stands in the last container."""
    paragraph: bool = False
    """The last container ends in a paragraph, which may go on."""

    def after(self, line: str) -> "_Blocks":
        """The blocks that are open behind `line`, which follows."""
        line = line.expandtabs(_CODE_COLUMNS).rstrip("\r")
        at, matched = self._match(line)
        if matched < len(self.containers) or self.fence is None:
            return self._begin(line, at, matched)
        body = line[at:].rstrip(" ")
        closes = body.lstrip(" ").startswith(self.fence) and not body.strip(" ").strip(self.fence[0])
        return attrs.evolve(self, fence=None) if closes and _indent(body, 0) < _CODE_COLUMNS else self

    def _match(self, line: str) -> tuple[int, int]:
        """How far `line` belongs to the markers of the open containers, and how many of them go on in it."""
        at = 0
        for matched, container in enumerate(self.containers):
            indent = _indent(line, at)
            blank = at + indent == len(line)
            if isinstance(container, _Quote):
                if indent >= _CODE_COLUMNS or line[at + indent : at + indent + 1] != ">":
                    return at, matched
                at = _behind_quote(line, at + indent)
            elif blank and not container.empty:
                at = len(line)
            elif not blank and indent >= container.columns:
                at += container.columns
            else:
                return at, matched
        return at, len(self.containers)

    def _begin(self, line: str, at: int, matched: int) -> "_Blocks":
        """The blocks behind a line in which no fence goes on: those that it begins from `at` in the `matched` ones."""
        whole = matched == len(self.containers)
        goes_on = self.paragraph and whole
        containers = list(self.containers[:matched])
        while True:
            indent = _indent(line, at)
            rest = line[at + indent :]
            if not rest:
                return _Blocks(containers=tuple(containers))
            opening = _OPENING.match(rest)
            item = _ITEM.match(rest)
            if indent >= _CODE_COLUMNS:
                break
            if opening is not None:
                return _Blocks(containers=_filled(containers), fence=opening[1] or opening[2])
            if _LEAF.match(rest) or (goes_on and _UNDERLINE.match(rest)):
                return _Blocks(containers=_filled(containers))
            if rest[0] == ">":
                at = _behind_quote(line, at + indent)
                containers = [*_filled(containers), _Quote()]
            elif item is not None and not (goes_on and _interrupts_nothing(item)):
                space = _indent(rest, item.end())
                if not 1 <= space <= _CODE_COLUMNS or item.end() + space == len(rest):
                    space = 1
                containers = [*_filled(containers), _Item(indent + item.end() + space)]
                at = min(at + indent + item.end() + space, len(line))
            else:
                break
            goes_on = False
        if self.paragraph and not whole and len(containers) == matched:
            return self  # a paragraph goes on without the markers of what contains it
        return _Blocks(containers=_filled(containers), paragraph=goes_on or indent < _CODE_COLUMNS)


class FenceTracker:
    """Follows the fences of one text."""

    def __init__(self) -> None:
        self._blocks = _Blocks()
        self._line = ""  # the line that is not complete yet
        self._beyond = ""  # stands for what is left out of it: a back-tick, other text, or both

    def feed(self, text: str) -> None:
        """Go on by `text`."""
        *complete, line = text.split("\n")
        for ended in complete:
            self._extend(ended)
            self._blocks = self._blocks.after(self._line + self._beyond)
            self._line = self._beyond = ""
        self._extend(line)

    @property
    def inside(self) -> bool:
        """Whether what comes next stands in a fence; the rest of an opening line counts."""
        return self._blocks.after(f"{self._line}{self._beyond}x").fence is not None

    def _extend(self, text: str) -> None:
        room = _LINE_CHARS - len(self._line)
        self._line += text[:room]
        for sign, is_there in (("x", bool(text[room:].strip(" `"))), ("`", "`" in text[room:])):
            if is_there and sign not in self._beyond:
                self._beyond += sign


def _indent(line: str, at: int) -> int:
    return len(line) - at - len(line[at:].lstrip(" "))


def _behind_quote(line: str, at: int) -> int:
    """The place behind the marker at `at` and the space that belongs to it."""
    return at + 2 if line[at + 1 : at + 2] == " " else at + 1


def _filled(containers: list[_Container]) -> tuple[_Container, ...]:
    """`containers`, in the last of which something stands now."""
    last = containers[-1] if containers else None
    if isinstance(last, _Item) and last.empty:
        return (*containers[:-1], _Item(last.columns, empty=False))
    return tuple(containers)


def _interrupts_nothing(item: re.Match[str]) -> bool:
    """Whether this marker, inside a paragraph, is text of it: an empty item, or a number that is not 1."""
    return item.end() == len(item.string.rstrip(" ")) or item[1] not in (None, "1")
