"""Read a request body as JSON, strictly: the standard reader lets too much through, and fails in too many ways.

Refused besides broken syntax: bytes that are no UTF-8, a byte-order mark, NaN and Infinity, numbers beyond a double,
half of a surrogate pair outside of text, a member given twice, nesting deeper than `MAX_DEPTH`, more values than
`MAX_VALUES`. Every refusal is an `InvalidRequest`. It knows nothing of what a body means. Invariants: what is returned
can be written as strict JSON again; the time goes by the length of the body, whatever it holds.
"""

import json
import math
import re
from typing import NoReturn, cast

from ninfer.conversation import MAX_DEPTH, InvalidRequest, JSONValue
from ninfer.protocols.values import shown
from ninfer.server.half_characters import mend_halves

MAX_VALUES = 1 << 19
"""Bodies of more values are refused: `[[],[],...` takes thirty times its bytes as objects, and a conversation that
fills the longest context has a third of so many."""

# Possessive, and an open string goes to the end: nothing is ever looked at twice.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(body: bytes, texts: tuple[str, ...] = ()) -> JSONValue:
    """The value that `body` spells. At the places `texts` half of a surrogate pair becomes U+FFFD.

    Raises:
        InvalidRequest: code `invalid_json`; the message says what and where.
    """
    if not body:
        raise _refused("the request body is empty; a JSON object is expected")
    if body.startswith(b"\xef\xbb\xbf"):
        raise _refused("the request body begins with a byte-order mark")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refused(f"the request body is not UTF-8: {error.reason} at byte {error.start}") from None
    _check_shape(body)
    try:
        value = cast(
            JSONValue,
            json.loads(text, parse_constant=_constant, parse_float=_number, object_pairs_hook=_members),
        )
    except json.JSONDecodeError as error:
        raise _refused(
            f"the request body is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from None
    except ValueError:  # an integer of more digits than Python converts
        raise _refused("the request body holds an integer of too many digits") from None
    except RecursionError:  # below our limit on a thread with a small stack
        raise _too_deep() from None
    if _SURROGATE_ESCAPE.search(body):
        mend_halves(value, texts)
    return value


def _refused(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_json")


def _too_deep() -> InvalidRequest:
    return _refused(f"the request body is nested deeper than {MAX_DEPTH} levels")


def _constant(name: str) -> NoReturn:
    raise _refused(f"the request body holds {name}, which is not JSON")


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _refused(f"the request body holds the number {shown(digits)}, which is beyond a double")
    return value


def _members(pairs: list[tuple[str, JSONValue]]) -> dict[str, JSONValue]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _refused(f"the request body holds the member {shown(name)} twice in one object")
            seen.add(name)
    return members


def _check_shape(body: bytes) -> None:
    """Refuse before the parser recurses, or makes millions of objects. Most bodies have few openers and few commas."""
    openers = body.count(b"[") + body.count(b"{")
    if openers <= MAX_DEPTH and openers + body.count(b",") < MAX_VALUES:
        return
    bare = _STRING.sub(b"", body)
    if bare.count(b"[") + bare.count(b"{") + bare.count(b",") >= MAX_VALUES:
        raise _refused(f"the request body holds more than {MAX_VALUES} values")
    depth = 0
    for bracket in _BRACKETS.finditer(bare):
        depth += 1 if bracket.group() in b"[{" else -1
        if depth > MAX_DEPTH:
            raise _too_deep()
