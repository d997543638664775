"""Control tokens come from the template alone: what a caller writes stays text.

Every string that a caller controls is wrapped in `CallerText`. Before rendering, each control token spelled in such a
string is replaced by one private character that occurs nowhere else, so neither the tokenizer nor the template's own
logic can mistake it; afterwards the rendering is cut at the control tokens that are left - the template's - and the
stand-ins in between are turned back and encoded as plain text. It knows no roles and no fields.

Invariant: where no caller string spells a control token, the ids are those of `Tokenizer.encode(rendering)`.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import attrs

from ninfer.conversation import InvalidRequest
from ninfer.prompt.template import ChatTemplate
from ninfer.prompt.tokenizer import Tokenizer


@attrs.frozen
class CallerText:
    """A string that a caller controls, in whatever place of the template's variables it stands."""

    text: str


Variables: TypeAlias = (
    "bool | int | float | str | CallerText | list[Variables] | dict[str | CallerText, Variables] | None"
)

_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]")
_PRIVATE_CODES = (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE))


def well_formed(text: str) -> str:
    """`text` with U+FFFD for lone surrogates, which clients make by cutting a string inside a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def caller_text(text: str) -> CallerText:
    """`text`, well-formed and wrapped."""
    return CallerText(well_formed(text))


def caller_json(value: object) -> Variables:
    """JSON that a caller wrote, every string and member name in it wrapped, members in their order."""
    if isinstance(value, str):
        return caller_text(value)
    if isinstance(value, Mapping):
        return {caller_text(str(key)): caller_json(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [caller_json(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(f"{type(value).__name__} is no JSON value")


def encode_rendering(
    tokenizer: Tokenizer, template: ChatTemplate, variables: Mapping[str, Variables], *, continuation: str = ""
) -> tuple[int, ...]:
    """Render, append the caller's `continuation`, encode; every control token among the ids is the template's.

    Raises:
        InvalidRequest: code invalid_prompt; the template refuses, or no private character is left to stand in.
    """
    texts = {wrapped.text for wrapped in _caller_texts(variables)} | {continuation}
    stand_ins = _StandIns(tokenizer, template, texts)

    def render(replaced: Mapping[str, str]) -> str:
        bound = {name: _bind(value, replaced) for name, value in variables.items()}
        return template.render(bound) + replaced.get(continuation, continuation)

    whole = {text: stand_ins.hide_spellings(text) for text in texts}
    rendering = render(whole)
    apart = {text: stand_ins.hide_edges(hidden) for text, hidden in whole.items()}
    if apart != whole:
        # Some string begins or ends like part of a control token, and text beside it might complete one. With the
        # edges hidden too it cannot, and a token that was made so is missing. If none is, the first rendering stands:
        # a template that looks at these very characters has seen them there.
        with contextlib.suppress(InvalidRequest):
            separate = render(apart)
            if tokenizer.control_pattern.findall(separate) != tokenizer.control_pattern.findall(rendering):
                rendering = separate
    return tokenizer.encode_pieces([(stand_ins.restore(text), control) for text, control in tokenizer.split(rendering)])


class _StandIns:
    """Private characters that stand in for text of one request's callers."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, texts: Iterable[str]) -> None:
        self._tokenizer = tokenizer
        taken = {character for text in (*texts, template.source) for character in _PRIVATE.findall(text)}
        self._free = (chr(code) for code in _PRIVATE_CODES if chr(code) not in taken)
        self._of: dict[str, str] = {}  # hidden text -> its character
        self._hidden: dict[int, str] = {}  # code of the character -> hidden text

    def hide_spellings(self, text: str) -> str:
        """`text` with a stand-in for every control token that it spells."""
        return self._tokenizer.control_pattern.sub(lambda found: self._stand_in(found.group()), text)

    def hide_edges(self, text: str) -> str:
        """`text` with stand-ins for characters at its edges that text beside it could complete to a control token.

        Edges are those of the trimmed text, since templates trim.
        """
        parts = self._tokenizer.control_parts
        core = text.strip()
        start = len(text) - len(text.lstrip())
        reach = range(1, min(parts.longest, len(core)) + 1)
        hidden = {start + size - 1 for size in reach if core[:size] in parts.endings}
        hidden |= {start + len(core) - size for size in reach if core[-size:] in parts.beginnings}
        if core in parts.middles:
            hidden.add(start)
        if not hidden:
            return text
        characters = list(text)
        for at in hidden:
            characters[at] = self._stand_in(characters[at])
        return "".join(characters)

    def restore(self, rendered: str) -> str:
        """`rendered` with every stand-in turned back."""
        return rendered.translate(self._hidden) if self._hidden else rendered

    def _stand_in(self, hidden: str) -> str:
        if hidden not in self._of:
            character = next(self._free, None)
            if character is None:
                raise InvalidRequest("The texts use every private character of Unicode", code="invalid_prompt")
            self._of[hidden] = character
            self._hidden[ord(character)] = hidden
        return self._of[hidden]


def _caller_texts(value: object) -> Iterator[CallerText]:
    if isinstance(value, CallerText):
        yield value
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from _caller_texts(key)
            yield from _caller_texts(member)
    elif isinstance(value, list):
        for item in value:
            yield from _caller_texts(item)


def _bind(value: Variables, replaced: Mapping[str, str]) -> object:
    """`value` with every caller's text in plain strings, as the template is to see it."""
    if isinstance(value, CallerText):
        return replaced[value.text]
    if isinstance(value, dict):
        return {_bind(key, replaced): _bind(member, replaced) for key, member in value.items()}
    if isinstance(value, list):
        return [_bind(item, replaced) for item in value]
    return value
