"""Typing of tool arguments: the family writes them as bare text, the declared schema says what they may be.

The rule, for one parameter: hints are the types of its schema - a direct `type`, or an `anyOf`/`oneOf` in which every
branch has one. Where string is among them the text stays a string, always. Otherwise an empty text is no argument;
true and false are read in any case; JSON text becomes the value that it is; other text stays a string, for the tool's
own validation to refuse. Without hints the text of an object or array becomes one and all else stays a string. No
defaults, no required members, no recursion into the schema.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NoReturn

import attrs

from ninfer.conversation import JSONValue, is_deeper, well_formed_value

MAX_DEPTH = 100
"""Deeper values stay text. Bodies may be 200 deep, and a call is to come back in one, inside its history."""

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})


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
    properties = schema.get("properties")
    declared = properties if isinstance(properties, Mapping) else {}
    texts: dict[str, str] = {}
    duplicates = 0
    for name, text in parameters:
        duplicates += name in texts
        texts[name] = text
    values: dict[str, JSONValue] = {}
    mismatched = 0
    for name, text in texts.items():
        hints = type_hints(declared.get(name))
        value = _untyped(text) if hints is None else _typed(text, hints)
        if isinstance(value, _Absent):
            continue
        values[name] = value
        mismatched += hints is not None and not any(_is(value, hint) for hint in hints)
    return TypedArguments(
        values=values, empty_omitted=len(texts) - len(values), mismatched=mismatched, duplicates=duplicates
    )


def type_hints(schema: object) -> frozenset[str] | None:
    """The types that a parameter's schema names at its top; None if it does not say."""
    if not isinstance(schema, Mapping):
        return None
    if "type" in schema:
        return _named_types(schema["type"])
    for union in ("anyOf", "oneOf"):
        branches = schema.get(union)
        if isinstance(branches, Sequence) and not isinstance(branches, str) and branches:
            named = [_named_types(branch.get("type")) if isinstance(branch, Mapping) else None for branch in branches]
            known = [types for types in named if types is not None]
            return frozenset().union(*known) if len(known) == len(named) else None
    return None


def _named_types(value: object) -> frozenset[str] | None:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and names and all(isinstance(name, str) and name in _TYPES for name in names):
        return frozenset(names)
    return None


def _typed(text: str, hints: frozenset[str]) -> "JSONValue | _Absent":
    if "string" in hints:
        return text
    bare = text.strip()
    if not bare:
        return _ABSENT
    if bare.lower() in ("true", "false"):
        return bare.lower() == "true"
    value = _json(bare)
    return text if isinstance(value, _Absent) else value


def _untyped(text: str) -> JSONValue:
    value = _json(text.strip())
    return value if isinstance(value, list | dict) else text


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


def _is(value: JSONValue, type_name: str) -> bool:
    """Whether `value` is of a JSON Schema type."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "null": value is None,
        "number": number,
        "integer": number and isinstance(value, int | float) and value == int(value),
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
    }[type_name]
