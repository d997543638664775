"""What a caller wrote, marked as such wherever it stands among a template's variables.

Every string that a caller controls is wrapped in `CallerText` before it goes anywhere near a template; what becomes of
it is decided in `control`. It knows no tokens and no templates.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import attrs

from ninfer.conversation import well_formed


@attrs.frozen
class Mark:
    """A place in a caller's text that is to be found again in the rendering."""

    at: int
    """Characters before it."""
    key: int
    """Tells the marks of one prompt apart."""


@attrs.frozen
class CallerText:
    """A string that a caller controls, in whatever place of the template's variables it stands."""

    text: str
    marks: tuple[Mark, ...] = ()
    """In the order of their places."""


Variables: TypeAlias = (
    "bool | int | float | str | CallerText | list[Variables] | dict[str | CallerText, Variables] | None"
)


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


def caller_texts(value: object) -> Iterator[CallerText]:
    """All that callers wrote in `value`."""
    if isinstance(value, CallerText):
        yield value
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from caller_texts(key)
            yield from caller_texts(member)
    elif isinstance(value, list):
        for item in value:
            yield from caller_texts(item)


def bind(value: Variables, spell: Callable[[CallerText], str]) -> object:
    """`value` with every caller's text as the plain string that `spell` gives for it."""
    if isinstance(value, CallerText):
        return spell(value)
    if isinstance(value, dict):
        return {bind(key, spell): bind(member, spell) for key, member in value.items()}
    if isinstance(value, list):
        return [bind(item, spell) for item in value]
    return value
