"""Arguments of calls in a history: JSON inside a string, as OpenAI's protocols have them, or the object itself.

It knows JSON, no call and no tool. Invariants: both forms of one object come to the same; what is returned can be
written as strict JSON again, members in the order in which they were received (TMPL-006).
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Annotated, NoReturn, TypeAlias, cast

import attrs

from ninfer.conversation import MAX_DEPTH, InvalidRequest, is_deeper, well_formed_value
from ninfer.protocols.structure import Fault
from ninfer.protocols.values import shown


@attrs.frozen
class _ObjectOrString:
    """What arguments may be; `read_arguments` looks into a string."""

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """The value itself."""
        if not isinstance(value, str | dict):
            raise Fault("a JSON object, or one in a string", value, "invalid_type")
        return value


WireArguments: TypeAlias = Annotated[str | Mapping[str, object], _ObjectOrString()]


def read_arguments(given: str | Mapping[str, object], path: str) -> Mapping[str, object]:
    """The object that is `given` at `path` of the body, or that it spells; a blank string is no arguments (TPL-04).

    Of a member given twice in a string the last counts; half of a surrogate pair becomes U+FFFD.

    Raises:
        InvalidRequest: it is no JSON object.
    """
    if not isinstance(given, str):
        return given
    if not given.strip():
        return {}
    try:
        value = json.loads(given, parse_constant=_no_number, parse_float=_number)
    except (ValueError, RecursionError):
        raise _refused(given, path) from None
    if not isinstance(value, dict) or is_deeper(value, MAX_DEPTH):
        raise _refused(given, path)
    return cast(dict[str, object], well_formed_value(value))


def _refused(text: str, path: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: expected a JSON object in a string, got {shown(text)}", param=path)


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(digits)
    return value
