"""The long strings of a JSON body, read piece by piece, and where in a body something is.

One call of the interpreter's own scanner over a body of a hundred megabytes keeps every other thread, and so every
stream, from running until it ends. It knows bytes of one string and no structure. Invariant: no call looks at more
than `PIECE_BYTES`, except the one that joins the pieces of a string.
"""

import codecs
import json
import re
from typing import TypeAlias, cast

PIECE_BYTES = 1 << 18
"""A millisecond or two of scanning, and ten where every character is an escape."""

Body: TypeAlias = bytes | bytearray

# Whole escapes only: a piece never ends inside one.
_RUN = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+')
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_HIGH_AT_END = re.compile("[\ud800-\udbff]\\Z")
HIGH_BYTES = len(r"\ud83d")
_CONTINUATIONS = bytes(range(0x80, 0xC0))


class NotJSON(ValueError):
    """`at` is the byte where the body stops being JSON."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


def read_string(body: Body, begin: int, piece_bytes: int = PIECE_BYTES) -> tuple[str, int]:
    """The string whose first character is at `begin`, and the place behind its closing quote.

    `piece_bytes` is at least what two escapes take.

    Raises:
        NotJSON: it does not end, or holds what no string may.
        UnicodeDecodeError: it is not UTF-8.
    """
    pieces: list[str] = []
    at = begin
    while True:
        end = cast("re.Match[bytes]", _RUN.match(body, at, at + piece_bytes)).end()
        ended = body[end : end + 1] == b'"'
        if end == at and not ended:
            raise _broken(body, begin, at)
        if end == at + piece_bytes:
            end -= _cut_bytes(body, end)
        raw = bytes(body[at:end])
        piece = raw.decode("utf-8")
        if b"\\" in raw:
            piece = cast(str, json.loads(f'"{piece}"'))
            if not ended and _HIGH_AT_END.search(piece) and end - at > HIGH_BYTES:
                piece, end = piece[:-1], end - HIGH_BYTES  # the other half of the pair may follow
        pieces.append(piece)
        if ended:
            return "".join(pieces), end + 1
        at = end


def _cut_bytes(body: Body, end: int) -> int:
    """How many bytes before `end` belong to a character that goes on there; none if this is no UTF-8."""
    for back in range(4):
        if body[end - back : end - back + 1] < b"\x80" or body[end - back] >= 0xC0:
            return back
    return 0


def has_surrogates(body: Body) -> bool:
    """Whether escapes may spell halves of surrogate pairs."""
    # One piece may end inside an escape, so the next begins before it.
    return any(
        _SURROGATE_ESCAPE.search(body, max(begin - HIGH_BYTES, 0), begin + PIECE_BYTES)
        for begin in range(0, len(body), PIECE_BYTES)
    )


def position(body: Body, at: int) -> str:
    """`line 3 column 7` of the byte `at`, both counted from 1, columns in characters."""
    lines, line_begin = 1, 0
    for begin in range(0, at, PIECE_BYTES):
        lines += body.count(b"\n", begin, min(begin + PIECE_BYTES, at))
    line_begin = body.rfind(b"\n", 0, at) + 1
    column = 1
    for begin in range(line_begin, at, PIECE_BYTES):
        piece = bytes(body[begin : min(begin + PIECE_BYTES, at)])
        column += len(piece.translate(None, delete=_CONTINUATIONS))
    return f"line {lines} column {column}"


def utf8_fault(body: Body) -> str:
    """Why and where `body` is not UTF-8; empty if it is."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for begin in range(0, len(body), PIECE_BYTES):
        before = begin - len(decoder.getstate()[0])
        try:
            decoder.decode(bytes(body[begin : begin + PIECE_BYTES]), final=begin + PIECE_BYTES >= len(body))
        except UnicodeDecodeError as error:
            return f"is not UTF-8: {error.reason} at byte {before + error.start}"
    return ""


def _broken(body: Body, begin: int, at: int) -> NotJSON:
    if at >= len(body):
        return NotJSON("Unterminated string starting", begin - 1)
    return NotJSON("Invalid \\escape" if body[at] == ord("\\") else "Invalid control character", at)
