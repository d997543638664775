"""Values that JSON can spell, and how deep they are nested. It knows no text."""

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
