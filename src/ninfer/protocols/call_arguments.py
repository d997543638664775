"""Arguments of calls in a history, which OpenAI's protocols carry as JSON inside a string.

It knows JSON, no call and no tool. Invariant: what is returned can be written as strict JSON again, members in the
order in which they were received (TMPL-006).
"""

import json
import math
from typing import NoReturn, cast

from ninfer.conversation import MAX_DEPTH, InvalidRequest, is_deeper, well_formed_value
from ninfer.protocols.values import shown


def read_arguments(text: str, path: str) -> dict[str, object]:
    """The object that `text`, which stands at `path` of the body, spells.

    Of a member given twice the last counts; half of a surrogate pair becomes U+FFFD.

    Raises:
        InvalidRequest: it is no JSON object.
    """
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_number)
    except (ValueError, RecursionError):
        raise _refused(text, path) from None
    if not isinstance(value, dict) or is_deeper(value, MAX_DEPTH):
        raise _refused(text, path)
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
