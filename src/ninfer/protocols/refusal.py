"""Refusing by name what a request may ask for but not get (D10, D11, D40).

    FIELDS = {"store": (one_of(False), "completions are not stored")}
    refuse_fields(body, FIELDS)      # Unsupported(param="store") unless absent, null or false

Shared by the protocols, each of which keeps its own tables. A field is refused only where its value asks for
behaviour; every message names the field, the value and the guarantee that cannot be given.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ninfer.conversation import Unsupported
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.values import shown, shown_name

Neutral: TypeAlias = Callable[[JSONValue], bool]
"""Whether a value asks for nothing."""

Refusals: TypeAlias = Mapping[str, tuple[Neutral, str]]
"""Field -> what asks for nothing, and the guarantee that is not given."""


UNCONSTRAINED = "constrained output is not in this build"
CONSTRAINED_ELSEWHERE = "output is constrained through structured_outputs, not through this name"
OTHER_PROTOCOL = "this is another protocol's name"
GUIDED = "guided_"


def one_of(*values: JSONValue) -> Neutral:
    """Neutral are these values alone."""
    # 1 == True in Python but not in JSON
    return lambda value: any(value == known and isinstance(value, bool) == isinstance(known, bool) for known in values)


def empty(value: JSONValue) -> bool:
    """Neutral is an array or an object without anything in it."""
    return value in ([], {})


def nothing(value: JSONValue) -> bool:
    """Neutral is an empty string, array or object."""
    return value in ("", [], {})


def plain_text(value: JSONValue) -> bool:
    """Neutral is an output format that constrains nothing."""
    return isinstance(value, dict) and value.get("type") == "text"


def never(value: JSONValue) -> bool:
    """No value is neutral, whatever it is."""
    return False


def refuse_fields(body: Mapping[str, JSONValue], fields: Refusals, *, at: str = "") -> None:
    """Raise `Unsupported` for the first member of `body`, which stands at the path `at`, that asks for something."""
    for name, value in body.items():
        if value is None or name not in fields:
            continue
        neutral, guarantee = fields[name]
        if not neutral(value):
            raise unsupported(f"{at}.{name}" if at else name, value, guarantee)


def refuse_guided(body: Mapping[str, JSONValue]) -> None:
    """Raise `Unsupported` for the first of the old names that constrain output, such as `guided_json`."""
    for name, value in body.items():
        if name.startswith(GUIDED) and value is not None:
            raise unsupported(shown_name(name), value, CONSTRAINED_ELSEWHERE)


def needs_vision(path: str, kind: str, what: str = "part") -> Unsupported:
    """The refusal of an image or a video, a `what` of the type `kind`."""
    return Unsupported(
        f"{path}: a {what} of type {shown(kind)} needs vision, which is not in this build",
        code="vision_disabled",
        param=path,
    )


def unsupported(path: str, value: JSONValue, guarantee: str) -> Unsupported:
    """The refusal of `value` at `path`; `guarantee` says what cannot be promised."""
    return Unsupported(f"{path}: {shown(value)} is not supported: {guarantee}", param=path)
