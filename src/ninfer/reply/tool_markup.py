"""The family's tool-call markup, read while it is being written.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    value
    </parameter>
    </function>
    </tool_call>

Also read: `function_calls` as wrapper, a function without a wrapper, `<function name="NAME">`, `<invoke name="NAME">`,
`<parameter name="KEY">`, and `param` for `parameter`. Values have no escape, so a closing tag ends a value only if
white space and then another parameter, the function's end or the end of the text follow; any other one, and a balanced
inner pair, is value text. It knows no schemas and no content around the region.

Invariant: a region that has failed would fail with whatever text came next; so what it holds can be let go at once.
"""

import enum
import re
from collections.abc import Collection, Generator
from typing import TypeAlias

import attrs

from ninfer.conversation import MAX_TOOL_NAME_CHARS, TOOL_NAME
from ninfer.reply.cursor import Cursor

MAX_PARAMETER_NAME_CHARS = 256

WRAPPERS = {"<tool_call>": "</tool_call>", "<function_calls>": "</function_calls>"}
"""Opening tag -> its closing tag."""

HEADS = {
    "<function=": (">", "</function>"),
    '<function name="': ('">', "</function>"),
    '<invoke name="': ('">', "</invoke>"),
}
"""Beginning of a function's opening tag -> the end of that tag, the closing tag."""

_DAMAGED_HEADS = {"function=": HEADS["<function="], "<=": HEADS["<function="]}
"""What is left of a head that lost its `<` or its keyword."""

_PARAMETERS = {
    "<parameter=": (">", "</parameter>"),
    '<parameter name="': ('">', "</parameter>"),
    "<param=": (">", "</param>"),
    '<param name="': ('">', "</param>"),
}

_PARAMETER_NAME_END = re.compile(r'[<>\n"]')

_MAX_REPAIRS = 4
"""Values without a closing tag in one region; each costs a second look at all that follows."""


class Fallback(enum.Enum):
    """Why markup was not, or not wholly, taken as calls."""

    NONE = "none"
    MALFORMED_STRUCTURE = "malformed_structure"
    INVALID_TOOL_NAME = "invalid_tool_name"
    UNDECLARED_TOOL = "undeclared_tool"
    TRAILING_CONTENT = "trailing_content"
    TRUNCATED_TAIL = "truncated_tail"


@attrs.frozen(kw_only=True)
class RawCall:
    """A call as it was written: parameters are (name, text) in order, repeated ones included."""

    name: str
    parameters: tuple[tuple[str, str], ...]


class _Failure(Exception):
    """The text is no region of calls, whatever follows."""

    def __init__(self, reason: Fallback) -> None:
        super().__init__(reason.value)
        self.reason = reason


Wait: TypeAlias = "Generator[None, None, None]"


class Region:
    """Reads one region: from a marker to the end of the text nothing but calls. `feed` it, then `finish` it."""

    def __init__(self, declared: Collection[str], *, tolerant: bool) -> None:
        """`declared` names the tools that there are; `tolerant` repairs damaged tags and takes undeclared names."""
        self.calls: list[RawCall] = []
        """The calls that are complete."""
        self.cut: RawCall | None = None
        """The call that the text ends in, with those of its parameters that are complete."""
        self.failure: Fallback | None = None
        self.ended_inside = False
        """The text ended before the markup did; nothing in it is wrong."""
        self.repaired = False
        """A damaged tag was read, or an undeclared name was taken."""
        self.used_chars = 0
        """Where the last complete call ends; with `cut`, its last complete parameter."""
        self._repairs = 0
        self._declared = declared
        self._tolerant = tolerant
        self._here = Cursor()
        self._steps = self._region()

    def feed(self, text: str) -> None:
        """Read on. After a failure nothing is read."""
        if self.failure is None and self._here.feed(text):
            self._resume()

    def finish(self) -> None:
        """The text ends here."""
        if self.failure is None:
            self._here.end()
            self._resume()
            self.ended_inside = self.failure is not None

    @property
    def read_chars(self) -> int:
        """How far the region was read; where it failed, if it did."""
        return self._here.at

    def _resume(self) -> None:
        try:
            next(self._steps, None)
        except _Failure as failure:
            self.failure = failure.reason

    def _region(self) -> Wait:
        yield from self._group()
        while (yield from self._here.skip_space()):
            at = self._here.at
            if (yield from self._here.accept([*WRAPPERS, *HEADS])) is None:
                raise _Failure(Fallback.TRAILING_CONTENT)
            self._here.at = at
            yield from self._group()

    def _group(self) -> Wait:
        """One wrapper with its functions, or one function that has none."""
        wrapper = yield from self._here.accept(WRAPPERS)
        if wrapper is None:
            yield from self._function(wrapped=False)
            return
        yield from self._here.skip_space()
        yield from self._function(wrapped=True)
        while (yield from self._here.skip_space()):
            if (yield from self._here.accept([WRAPPERS[wrapper]])) is not None:
                self.used_chars = self._here.at
                return
            at = self._here.at
            if (yield from self._here.accept(HEADS)) is None:
                break
            self._here.at = at
            yield from self._function(wrapped=True)
        raise _Failure(Fallback.MALFORMED_STRUCTURE)

    def _function(self, *, wrapped: bool) -> Wait:
        head = yield from self._here.accept({**HEADS, **_DAMAGED_HEADS} if self._tolerant and wrapped else HEADS)
        if head is None:
            raise _Failure(Fallback.MALFORMED_STRUCTURE)
        self.repaired |= head in _DAMAGED_HEADS
        tag_end, closer = (HEADS | _DAMAGED_HEADS)[head]
        name = yield from self._name(tag_end)
        if name not in self._declared:
            if not self._tolerant:
                raise _Failure(Fallback.UNDECLARED_TOOL)
            self.repaired = True
        parameters: list[tuple[str, str]] = []
        self.cut = None
        while (yield from self._here.skip_space()):
            if (yield from self._here.accept([closer])) is not None:
                self.calls.append(RawCall(name=name, parameters=tuple(parameters)))
                self.cut, self.used_chars = None, self._here.at
                if self._tolerant and not wrapped:
                    yield from self._stray_closer()
                return
            opener = yield from self._opener()
            if opener is None:
                break
            key, value_closer = opener
            parameters.append((key, (yield from self._value(value_closer, closer))))
            if not self.calls:
                self.cut, self.used_chars = RawCall(name=name, parameters=tuple(parameters)), self._here.at
        raise _Failure(Fallback.MALFORMED_STRUCTURE)

    def _name(self, tag_end: str) -> Generator[None, None, str]:
        start = self._here.at
        while (found := TOOL_NAME.match(self._here.text, start)) is not None and found.end() == len(self._here.text):
            if found.end() - start > MAX_TOOL_NAME_CHARS:
                break
            if not (yield from self._here.more()):
                raise _Failure(Fallback.MALFORMED_STRUCTURE)
        name = found.group() if found is not None else ""
        if not 0 < len(name) <= MAX_TOOL_NAME_CHARS:
            raise _Failure(Fallback.INVALID_TOOL_NAME)
        self._here.at = start + len(name)
        after = self._here.text[self._here.at]
        if (yield from self._here.accept([tag_end])) is None:
            if after not in "\r\n<":
                raise _Failure(Fallback.INVALID_TOOL_NAME)
            if not self._tolerant:
                raise _Failure(Fallback.MALFORMED_STRUCTURE)
            self.repaired = True
        return name

    def _stray_closer(self) -> Wait:
        """The closing tag of a wrapper whose opening tag was dropped."""
        at = self._here.at
        if (yield from self._here.skip_space()) and (yield from self._here.accept(list(WRAPPERS.values()))) is not None:
            self.repaired = True
        else:
            self._here.at = at

    def _opener(self) -> Generator[None, None, tuple[str, str] | None]:
        """Go past a parameter's opening tag: its name and its closing tag; None, not moved, if none stands here."""
        start = self._here.at
        head = yield from self._here.accept(_PARAMETERS)
        if head is not None:
            tag_end, closer = _PARAMETERS[head]
            name_at = self._here.at
            while True:
                end = _PARAMETER_NAME_END.search(self._here.text, name_at)
                if end is not None:
                    break
                if len(self._here.text) - name_at > MAX_PARAMETER_NAME_CHARS or not (yield from self._here.more()):
                    break
            if end is not None and name_at < end.start() <= name_at + MAX_PARAMETER_NAME_CHARS:
                self._here.at = end.start()
                if (yield from self._here.accept([tag_end])) is not None:
                    return self._here.text[name_at : end.start()], closer
        self._here.at = start
        return None

    def _value(self, closer: str, function_closer: str) -> Generator[None, None, str]:
        """Go past a value and its closing tag: the value without its framing line breaks."""
        start, depth = self._here.at, 0
        missing_at: int | None = None  # an inner opening tag at which the value may have lost its closing tag
        while True:
            tag_at = self._here.text.find("<", self._here.at)
            if tag_at < 0:
                self._here.at = len(self._here.text)
                if (yield from self._here.more(only_tags=True)):
                    continue
                self._repairs += 1
                if not self._tolerant or missing_at is None or self._repairs > _MAX_REPAIRS:
                    raise _Failure(Fallback.MALFORMED_STRUCTURE)
                self.repaired, self._here.at = True, missing_at
                return _unframed(self._here.text[start:missing_at])
            self._here.at = tag_at
            opener = yield from self._opener()
            if opener is not None:
                if opener[1] == closer:
                    depth += 1
                    if missing_at is None and self._here.text[tag_at - 1] == "\n":
                        missing_at = tag_at
            elif (yield from self._here.accept([closer])) is None:
                self._here.at = tag_at + 1
            elif depth:
                depth -= 1
            elif (yield from self._value_ends(function_closer)):
                return _unframed(self._here.text[start:tag_at])

    def _value_ends(self, function_closer: str) -> Generator[None, None, bool]:
        """Whether the closing tag before this point ends a value. Does not move."""
        at = self._here.at
        ends = not (yield from self._here.skip_space())
        if not ends:
            rest_at = self._here.at
            closed = yield from self._here.accept([function_closer])
            ends = closed is not None or (yield from self._opener()) is not None
            rest = self._here.text[rest_at:]
            if not ends and self._here.ended and ">" not in rest:  # the text may end inside the next tag
                ends = any(tag.startswith(rest) or rest.startswith(tag) for tag in (function_closer, *_PARAMETERS))
        self._here.at = at
        return ends


def _unframed(text: str) -> str:
    """`text` without the line break after its opening tag and the one before its closing tag."""
    for line_break in ("\r\n", "\n"):
        if text.startswith(line_break):
            text = text[len(line_break) :]
            break
    for line_break in ("\r\n", "\n"):
        if text.endswith(line_break):
            return text[: -len(line_break)]
    return text
