"""Halves of surrogate pairs in a body: mended where text stands, refused everywhere else.

    mend_halves(value, ("messages[].content", "messages[].content[].text", "calls[].arguments.**"))

A client that cuts a string inside a character sends such a half, and repeats it with the history in each later turn. In
text it becomes U+FFFD; a name or an id that holds one is refused. It knows places, not what stands there. Invariant:
afterwards every string of the value can be written as UTF-8.
"""

import functools
import re
from collections.abc import Iterable

from ninfer.conversation import InvalidRequest, JSONValue, well_formed, well_formed_value
from ninfer.protocols.values import shown, shown_name

_HALF = re.compile("[\ud800-\udfff]")  # two that make a pair do not stay two when they are read
_STEP = re.compile(r"\[\]|[^.\[\]]+")


class _Places(dict[str, "_Places"]):
    """Places below a place, by member name; `[]` stands for the items of an array."""

    is_text = False
    """A string here is text."""
    whole = False
    """Everything below is text as well."""


def mend_halves(value: JSONValue, texts: tuple[str, ...]) -> None:
    """Mend or refuse all halves in `value`, in place. Iterative: the value may be large.

    `texts` are the places of text: `messages[].content`, or `input.**` for all that stands at `input` and below.

    Raises:
        InvalidRequest: code `invalid_json`; a string elsewhere holds a half. `param` is its path.
    """
    if isinstance(value, str) and _has_half(value):
        raise _refused("", value)
    waiting = [(value, _places(texts), "")]  # a container, the places below it, its path
    while waiting:
        container, places, path = waiting.pop()
        members: Iterable[tuple[str | int, JSONValue]] = ()
        if isinstance(container, dict):
            members = container.items()
        elif isinstance(container, list):
            members = enumerate(container)
        for key, member in members:
            if isinstance(key, str) and _has_half(key):
                raise _refused(_joined(path, key), key)
            if not isinstance(member, str | dict | list):
                continue
            below = places.get("[]" if isinstance(key, int) else key, _NOWHERE)
            if below.whole:
                container[key] = well_formed_value(member)  # type: ignore[index]
            elif not isinstance(member, str):
                waiting.append((member, below, _joined(path, key)))
            elif _has_half(member):
                if not below.is_text:
                    raise _refused(_joined(path, key), member)
                container[key] = well_formed(member)  # type: ignore[index]


@functools.cache
def _places(texts: tuple[str, ...]) -> _Places:
    """The tree of `texts`."""
    root = _Places()
    for text in texts:
        place = root
        for step in _STEP.findall(text.removesuffix(".**")):
            place = place.setdefault(step, _Places())
        place.is_text = True
        place.whole = text.endswith(".**")
    return root


_NOWHERE = _Places()


def _has_half(text: str) -> bool:
    return not text.isascii() and _HALF.search(text) is not None


def _joined(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{shown_name(key)}" if path else shown_name(key)


def _refused(path: str, text: str) -> InvalidRequest:
    where = path or "the request body"
    return InvalidRequest(
        f"{where}: the string {shown(text)} holds half of a surrogate pair", code="invalid_json", param=path or None
    )
