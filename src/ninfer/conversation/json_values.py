"""Values that JSON can spell: how deep they are nested, and which characters their strings may hold."""

from typing import TypeAlias

JSONValue: TypeAlias = "bool | int | float | str | list[JSONValue] | dict[str, JSONValue] | None"

MAX_DEPTH = 200
"""Levels of lists and objects that a request body may have, and JSON in its strings; tool schemas stay below 30."""


def is_deeper(value: object, levels: int) -> bool:
    """Whether lists and objects lie inside each other more than `levels` deep. Takes no stack."""
    level = [value]
    for _ in range(levels):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def well_formed(text: str) -> str:
    """`text` with U+FFFD for halves of surrogate pairs, which clients make by cutting a string inside a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def well_formed_value(value: JSONValue) -> JSONValue:
    """`value` with every string and member name in it well-formed. Takes a level of the stack for each of its own."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {well_formed(name): well_formed_value(member) for name, member in value.items()}
    if isinstance(value, list):
        return [well_formed_value(item) for item in value]
    return value
