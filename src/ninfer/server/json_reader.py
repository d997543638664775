"""Read a request body as JSON, strictly and in short steps: the standard reader lets too much through and never pauses.

Refused besides broken syntax: bytes that are no UTF-8, a byte-order mark, NaN and Infinity, numbers beyond a double,
half of a surrogate pair outside of text, a member given twice, nesting deeper than `MAX_DEPTH`, more values than
`MAX_VALUES`. Every refusal is an `InvalidRequest`. It knows nothing of what a body means. Invariants: what is returned
can be written as strict JSON again; the time goes by the length of the body, whatever it holds; besides the body and
the value it takes memory for one string at most; no step but the joining of a long string keeps other threads from
running for more than a few milliseconds.
"""

import math
import re
from typing import TypeAlias, cast

from ninfer.conversation import MAX_DEPTH, InvalidRequest, JSONValue
from ninfer.protocols.values import shown
from ninfer.server.half_characters import mend_halves
from ninfer.server.json_strings import Body, NotJSON, has_surrogates, position, read_string, utf8_fault

MAX_VALUES = 1 << 19
"""Bodies of more values are refused: `[[],[],...` takes thirty times its bytes as objects, and a conversation that
fills the longest context has a third of so many."""
MAX_DIGITS = 4300
"""In a row: Python converts no longer ones to integers."""
MOST_SPACES = 1 << 16
"""In a row that one match takes."""

Container: TypeAlias = "dict[str, JSONValue] | list[JSONValue]"

# Every repetition is bounded, because a match lets no other thread run; and possessive, so nothing is looked at twice.
_SPACE = rb"[ \t\n\r]{0,%d}+" % MOST_SPACES
_PLAIN = rb'"([^"\\\x00-\x1f]{0,65536}+)"'
_DIGITS = rb"[0-9]{1,%d}+" % MAX_DIGITS
_NUMBER = rb"(-?+(?:0|(?=[1-9])" + _DIGITS + rb"))((?:\." + _DIGITS + rb")?+(?:[eE][-+]?+" + _DIGITS + rb")?+)"
_VALUE = re.compile(_SPACE + rb"(?:" + _PLAIN + rb"|" + _NUMBER + rb'|([\[{])|(true|false|null)|("))')
_TEXT, _WHOLE, _REST, _OPENER, _WORD, _QUOTE = range(1, 7)
_NAME = re.compile(_SPACE + rb"(?:" + _PLAIN + rb'|("))')
_COLON = re.compile(_SPACE + rb":")
_AFTER = re.compile(_SPACE + rb"([,\]}])")
_SPACES = re.compile(_SPACE)
_CONSTANT = re.compile(rb"NaN|-?Infinity")
_TOO_LONG = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))
_WORDS: dict[bytes, JSONValue] = {b"true": True, b"false": False, b"null": None}


def read_json(body: Body, texts: tuple[str, ...] = ()) -> JSONValue:
    """The value that `body` spells. At the places `texts` half of a surrogate pair becomes U+FFFD.

    Raises:
        InvalidRequest: code `invalid_json`; the message says what and where.
    """
    if not body:
        raise _refused("is empty; a JSON object is expected")
    if body.startswith(b"\xef\xbb\xbf"):
        raise _refused("begins with a byte-order mark")
    try:
        value = _Reading(body).whole()
    except NotJSON as error:
        raise _explained(body, error) from None
    except UnicodeDecodeError:
        raise _refused(utf8_fault(body)) from None
    if has_surrogates(body):
        mend_halves(value, texts)
    return value


class _Reading:
    """One pass over a body."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._values = 0
        self._names: dict[str, str] = {}
        """Of members: a body repeats few of them thousands of times."""

    def whole(self) -> JSONValue:
        """The one value of the body. Takes no stack, however deep it is."""
        body, at, name = self._body, 0, ""
        inner: Container = []
        around: list[Container] = []  # what `inner` lies in, the outermost first
        while True:
            found = _VALUE.match(body, at) or self._behind_spaces(_VALUE, at, "Expecting value")
            value, at = self._value(found)
            if isinstance(inner, list):
                inner.append(value)
            else:
                inner[name] = value
            if found.lastindex == _OPENER:
                if len(around) == MAX_DEPTH:
                    raise _refused(f"is nested deeper than {MAX_DEPTH} levels")
                around.append(inner)
                inner = cast(Container, value)
                at = self._skip_spaces(at)
                if body[at : at + 1] not in (b"]", b"}"):
                    if isinstance(inner, dict):
                        name, at = self._name(inner, at)
                    continue
            while around:
                found = _AFTER.match(body, at) or self._behind_spaces(_AFTER, at, "Expecting ',' delimiter")
                at = found.end()
                if found[1] == b",":
                    self._count()
                    if isinstance(inner, dict):
                        name, at = self._name(inner, at)
                    break
                if (found[1] == b"]") != isinstance(inner, list):
                    raise NotJSON("Expecting ',' delimiter", at - 1)
                inner = around.pop()
            else:
                at = self._skip_spaces(at)
                if at < len(body):
                    raise NotJSON("Extra data", at)
                return cast(list[JSONValue], inner)[0]

    def _value(self, found: re.Match[bytes]) -> tuple[JSONValue, int]:
        """A scalar, or a container that is still empty, and the place behind what was found of it."""
        at = found.end()
        match found.lastindex:
            case 1:
                return found[_TEXT].decode(), at
            case 3:
                return _number(found[_WHOLE], found[_REST]), at
            case 4:
                self._count()
                return [] if found[_OPENER] == b"[" else {}, at
            case 5:
                return _WORDS[found[_WORD]], at
            case _:
                return read_string(self._body, at)

    def _name(self, members: dict[str, JSONValue], at: int) -> tuple[str, int]:
        """The name of the next member and the place behind its colon."""
        found = _NAME.match(self._body, at) or self._behind_spaces(
            _NAME, at, "Expecting property name enclosed in double quotes"
        )
        at = found.end()
        if found.lastindex == 1:
            name = found[1].decode()
        else:
            name, at = read_string(self._body, at)
        if name in members:
            raise _refused(f"holds the member {shown(name)} twice in one object")
        found = _COLON.match(self._body, at) or self._behind_spaces(_COLON, at, "Expecting ':' delimiter")
        return self._names.setdefault(name, name), found.end()

    def _count(self) -> None:
        """One value more: openers and commas are counted."""
        self._values += 1
        if self._values >= MAX_VALUES:
            raise _refused(f"holds more than {MAX_VALUES} values")

    def _behind_spaces(self, wanted: re.Pattern[bytes], at: int, message: str) -> re.Match[bytes]:
        """What is wanted behind more space than one match takes."""
        at = self._skip_spaces(at)
        found = wanted.match(self._body, at)
        if found is None:
            raise NotJSON(message, at)
        return found

    def _skip_spaces(self, at: int) -> int:
        while (end := cast("re.Match[bytes]", _SPACES.match(self._body, at)).end()) - at == MOST_SPACES:
            at = end
        return end


def _number(whole: bytes, rest: bytes) -> JSONValue:
    if not rest:
        return int(whole)
    value = float(whole + rest)
    if not math.isfinite(value):
        raise _refused(f"holds the number {shown((whole + rest).decode())}, which is beyond a double")
    return value


def _explained(body: Body, error: NotJSON) -> InvalidRequest:
    """The refusal of what is no JSON, with the reason that a reader would look for."""
    if body[error.at : error.at + 1] >= b"\x80" and (fault := utf8_fault(body)):
        return _refused(fault)
    constant = _CONSTANT.match(body, error.at)
    if constant is not None:
        return _refused(f"holds {constant[0].decode()}, which is not JSON")
    if _TOO_LONG.match(body, max(error.at - MAX_DIGITS, 0)):
        return _refused("holds a number of too many digits")
    return _refused(f"is not JSON: {error} at {position(body, error.at)}")


def _refused(what: str) -> InvalidRequest:
    return InvalidRequest(f"the request body {what}", code="invalid_json")
