"""JSON values as they can stand on the wire: objects that repeat a name, numbers and strings that no parser accepts.

It renders, it does not parse. Invariant: without `Raw` and repeated names the text is what `json` would read back.
"""

import json
from typing import TypeAlias

import attrs


@attrs.frozen
class Raw:
    """Text that goes out as it is, valid or not."""

    text: str


@attrs.define
class Members:
    """An object's members in order; a name may come twice. Both lists have the same length."""

    names: list[str]
    values: list["Value"]


Value: TypeAlias = "bool | int | float | str | list[Value] | Members | Raw | None"


def from_python(value: object) -> Value:
    """A copy of what `json.loads` would give, ready to be spoiled."""
    if isinstance(value, dict):
        return Members([str(name) for name in value], [from_python(member) for member in value.values()])
    if isinstance(value, (list, tuple)):
        return [from_python(member) for member in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} is not JSON")


def render(value: Value) -> bytes:
    """The text of a value in UTF-8."""
    return _text(value).encode("utf-8", "surrogatepass")


def _text(value: Value) -> str:
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, Members):
        pairs = zip(value.names, value.values, strict=True)
        return "{" + ",".join(f"{json.dumps(name)}:{_text(member)}" for name, member in pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_text(member) for member in value) + "]"
    return json.dumps(value, ensure_ascii=False)
