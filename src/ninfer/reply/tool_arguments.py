"""Typing of tool arguments: the family writes them as bare text, the declared schema says what they may be.

The rule, for one parameter, by the hints that its schema gives (`value_hints`). Where members are counted up, the text
is the member that it spells, as a string first and then as JSON. Where string is among the types the text stays a
string, always. Otherwise an empty text is no argument; true and false are read in any case; JSON text becomes the value
that it is; other text stays a string, for the tool's own validation to refuse. Without hints JSON text becomes its
value, and all else stays a string. No defaults, no required members, no look into values.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

import attrs

from ninfer.conversation import JSONValue, is_deeper, well_formed_value
from ninfer.reply.value_hints import Hints, SchemaHints

MAX_DEPTH = 100
"""Deeper values stay text. Bodies may be 200 deep, and a call is to come back in one, inside its history."""

_TRUTHS: Final = {"true": True, "false": False}


class _Absent:
    """The text stands for no argument at all."""


_ABSENT: Final = _Absent()


@attrs.frozen(kw_only=True)
class TypedArguments:
    """Arguments of one call in the order in which the model first named them, and what was done to them."""

    values: Mapping[str, JSONValue]
    empty_omitted: int = 0
    """Empty texts of parameters that are no strings."""
    mismatched: int = 0
    """Arguments that are not of a declared type; they are kept."""
    duplicates: int = 0
    """Parameters named again; the last text counts, at the first place."""


def type_arguments(parameters: Iterable[tuple[str, str]], schema: Mapping[str, object]) -> TypedArguments:
    """The arguments of a call whose tool declares the parameters object `schema`."""
    declared = SchemaHints(schema)
    texts: dict[str, str] = {}
    duplicates = 0
    for name, text in parameters:
        duplicates += name in texts
        texts[name] = text
    values: dict[str, JSONValue] = {}
    mismatched = 0
    for name, text in texts.items():
        hints = declared.of(name)
        value = _untyped(text) if hints is None else _typed(text, hints)
        if isinstance(value, _Absent):
            continue
        values[name] = value
        mismatched += hints is not None and not hints.admits(value)
    return TypedArguments(
        values=values, empty_omitted=len(texts) - len(values), mismatched=mismatched, duplicates=duplicates
    )


def _typed(text: str, hints: Hints) -> "JSONValue | _Absent":
    bare = text.strip()
    truth = _TRUTHS.get(bare.lower())
    if hints.members is not None:
        for candidate in (text, _json(bare), _ABSENT if truth is None else truth):
            if not isinstance(candidate, _Absent) and hints.admits(candidate):
                return candidate
    if "string" in hints.types:
        return text
    if not bare:
        return _ABSENT
    if truth is not None:
        return truth
    value = _json(bare)
    return text if isinstance(value, _Absent) else value


def _untyped(text: str) -> JSONValue:
    value = _json(text.strip())
    return text if isinstance(value, _Absent) else value


def _json(text: str) -> "JSONValue | _Absent":
    """The value of a JSON text that can also be sent as JSON again, by us and by the client that repeats it."""
    try:
        value: JSONValue = json.loads(text, parse_constant=_refuse)
        if is_deeper(value, MAX_DEPTH):
            return _ABSENT
        value = well_formed_value(value)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        # Also 1e999, and a number of more digits than Python reads.
        return _ABSENT
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
