"""What the two ends of a rendering process say to each other.

A request is marshalled: it comes from the server, and both ends are one Python. An answer comes from a stranger's
template, so it is a kind and UTF-8 text, and nothing that is decoded could be more than that. Each has its length
before it.
"""

import marshal
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Self, TypeAlias


class Kind(Enum):
    """What an answer tells."""

    DONE = b"d"
    """The rendering; of a compilation the names that the template reads, one a line."""
    BAD_SOURCE = b"b"
    REFUSED = b"r"
    TOO_LONG = b"l"
    NO_MEMORY = b"m"


class Answer(NamedTuple):
    """An answer, and the text that belongs to it: a rendering or a reason."""

    kind: Kind
    text: str = ""


Send: TypeAlias = Callable[[bytes], object]

Receive: TypeAlias = Callable[[int], bytes]
"""Exactly so many bytes; raises `EOFError` if there are not."""

_REQUEST = struct.Struct("<Q")
_ANSWER = struct.Struct("<cQ")


class BrokenFrame(ValueError):
    """The other end has sent something else than an answer."""


def send_request(send: Send, request: Any) -> None:
    """Send plain data: JSON's types."""
    data = marshal.dumps(request)
    send(_REQUEST.pack(len(data)) + data)


def receive_request(receive: Receive) -> object:
    """The next request."""
    (size,) = _REQUEST.unpack(receive(_REQUEST.size))
    return marshal.loads(receive(size))


def send_answer(send: Send, answer: Answer) -> None:
    """Send an answer; raises `UnicodeEncodeError` for half a character."""
    data = answer.text.encode()
    send(_ANSWER.pack(answer.kind.value, len(data)) + data)


def receive_answer(receive: Receive, *, most_bytes: int) -> Answer:
    """The next answer.

    Raises:
        BrokenFrame: it is none, or longer than `most_bytes`.
    """
    kind, size = _ANSWER.unpack(receive(_ANSWER.size))
    if size > most_bytes:
        raise BrokenFrame(f"an answer of {size} bytes")
    try:
        return Answer(Kind(kind), receive(size).decode())
    except ValueError as error:
        raise BrokenFrame(str(error)) from error


class Render(NamedTuple):
    """A request for a rendering."""

    variables: Mapping[str, object]
    most_chars: int
    cpu_s: int
    """Seconds of work after which the system ends the process, in case its parent is gone."""

    def to_plain(self) -> object:
        """As `send_request` takes it."""
        return (dict(self.variables), self.most_chars, self.cpu_s)

    @classmethod
    def of_plain(cls, value: object) -> Self:
        """What `to_plain` gave."""
        assert isinstance(value, tuple)
        return cls(*value)
