"""Read a request body as JSON, strictly: the standard reader lets too much through, and fails in too many ways.

Refused besides broken syntax: bytes that are no UTF-8, a byte-order mark, NaN and Infinity, numbers beyond a double,
lone surrogates, a member given twice, nesting deeper than `MAX_DEPTH`. Every refusal is an `InvalidRequest`.
It knows nothing of what a body means. Invariant: what is returned can be written as strict JSON again.
"""

import json
import math
import re
from typing import NoReturn, cast

from ninfer.conversation import InvalidRequest
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.values import shown

MAX_DEPTH = 200
"""Deeper bodies are refused; tool schemas of real clients stay below 30."""
THREAD_BYTES = 1 << 20
"""Bodies above this are better parsed in a thread: 100 MiB take 0.2 s, in which every stream would stand still."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(body: bytes) -> JSONValue:
    """The value that `body` spells.

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
    _check_depth(body)
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
        _check_surrogates(value)
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
        names = [name for name, _ in pairs]
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise _refused(f"the request body holds the member {shown(twice)} twice in one object")
    return members


def _check_depth(body: bytes) -> None:
    """Refuse before the parser recurses. A body with few openers cannot be deep, and most have few."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKETS.finditer(_STRING.sub(b"", body)):
        depth += 1 if bracket.group() in b"[{" else -1
        if depth > MAX_DEPTH:
            raise _too_deep()


def _check_surrogates(value: JSONValue) -> None:
    """Refuse strings that cannot be written as UTF-8. Iterative: the value may be large."""
    waiting: list[JSONValue] = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            try:
                found.encode("utf-8")
            except UnicodeEncodeError:
                raise _refused(f"the string {shown(found)} holds half of a surrogate pair") from None
        elif isinstance(found, dict):
            waiting.extend(found.keys())
            waiting.extend(found.values())
        elif isinstance(found, list):
            waiting.extend(found)
