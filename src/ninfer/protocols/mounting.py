"""What a protocol gives, checked before anything is done with it: its members, its routes, and its errors.

Protocols are written elsewhere, and the interface cannot keep one from returning a tuple where a `Route` is asked for.
It knows the interface, no protocol in particular, and no HTTP framework. Invariant: every fault of a protocol leaves as
`BrokenProtocol`, with a text of one line that names the protocol.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from traceback import walk_tb
from typing import cast

import ninfer.conversation.errors as errors
from ninfer.conversation import RequestError
from ninfer.protocols.plugin import Protocol, ReplyBody, Route, StreamFailed, StreamForm, WireError
from ninfer.protocols.sse import dump_json
from ninfer.protocols.wire_schema import WireSchemas

ERROR_KINDS: tuple[type[RequestError], ...] = tuple(
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RequestError)
)
"""Every kind of error that a protocol may be asked to write."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_PATH = re.compile(r"(?=/)(?:/|[^/{}<>?#\s]|\{[A-Za-z_]\w*\})+(?:(?<=/)\{[A-Za-z_]\w*:path\})?")
_MESSAGE_CHARS = 300


class BrokenProtocol(Exception):
    """A protocol does not keep the interface; the text is one line that names it."""

    def __init__(self, protocol: object, fault: str) -> None:
        super().__init__(f"the protocol {name_of(protocol)} is broken: {fault}")


def name_of(protocol: object) -> str:
    """The protocol's name, or its class's where it has none."""
    name = getattr(protocol, "name", None)
    return name if isinstance(name, str) and name else type(protocol).__qualname__


def check_protocol(protocol: object) -> None:
    """Check everything that can be told without a request: members, routes, and one error of each kind.

    Raises:
        BrokenProtocol: the first thing that is wrong.
    """
    for member in ("name", "request_id_header"):
        value = getattr(protocol, member, None)
        if not isinstance(value, str) or not _TOKEN.fullmatch(value):
            raise BrokenProtocol(protocol, f"{member} is {_shown(value)} instead of a word")
    for method in ("routes", "error", "stream_error"):
        if not callable(getattr(protocol, method, None)):
            raise BrokenProtocol(protocol, f"it has no method {method}")
    whole = cast(Protocol, protocol)
    routes_of(whole)
    for kind in ERROR_KINDS:
        sample = kind("an error of each kind is written when the server starts", param="path")
        error_of(whole, sample, "req_0")
        stream_error_of(whole, sample, "req_0")


def routes_of(protocol: Protocol) -> tuple[Route, ...]:
    """The protocol's routes, checked.

    Raises:
        BrokenProtocol: one of them cannot be mounted.
    """
    try:
        found = tuple(protocol.routes())
    except (Exception, SystemExit) as error:
        raise BrokenProtocol(protocol, f"routes() failed: {described(error, protocol)}") from error
    for at, route in enumerate(found):
        for fault in _faults(route):
            raise BrokenProtocol(protocol, f"routes()[{at}] {fault}")
    return found


def _faults(route: object) -> Iterator[str]:
    if not isinstance(route, Route):
        yield f"is {_shown(route)} instead of a Route"
        return
    if not isinstance(route.method, str) or not route.method.isalpha():
        yield f"has the method {_shown(route.method)}"
    if not isinstance(route.path, str) or not _PATH.fullmatch(route.path):
        yield f"has the path {_shown(route.path)}; one is /words/{{placeholder}}, at its end perhaps {{rest:path}}"
    elif len(set(names := re.findall(r"\{(\w+)", route.path))) != len(names):
        yield f"has the path {route.path}, which names a placeholder twice"
    if not callable(route.handler) or inspect.isasyncgenfunction(route.handler):
        yield f"has the handler {_shown(route.handler)} instead of an async function"
    if not isinstance(route.summary, str):
        yield f"has the summary {_shown(route.summary)}"
    if not isinstance(route.streams, StreamForm):
        yield f"has streams {_shown(route.streams)} instead of a StreamForm"
    elif not _is_header_value(route.streams.content_type):
        yield f"has streams of the content type {_shown(route.streams.content_type)}"
    if route.body is not None:
        try:
            WireSchemas().reference(route.body)
        except Exception as error:
            yield f"has a body that cannot be read: {described(error)}"


def error_of(protocol: Protocol, error: RequestError, request_id: str) -> WireError:
    """`error` as the protocol writes it, checked.

    Raises:
        BrokenProtocol: it does not write it.
    """
    try:
        wire = protocol.error(error, request_id)
        if not isinstance(wire, WireError):
            raise TypeError(f"it returned {_shown(wire)} instead of a WireError")
        check_answer(wire.body, wire.status, wire.headers)
        if wire.status < 400:
            raise ValueError(f"the status {wire.status} is not an error's")
    except (Exception, SystemExit) as fault:
        raise BrokenProtocol(
            protocol, f"error() failed for {type(error).__name__}: {described(fault, protocol)}"
        ) from fault
    return wire


def stream_error_of(
    protocol: Protocol, error: RequestError, request_id: str, *, failed: StreamFailed | None = None
) -> bytes:
    """The last bytes of a stream that fails, as the protocol writes them, or as `failed` does for this one stream.

    Raises:
        BrokenProtocol: it does not write any.
    """
    try:
        frame = protocol.stream_error(error, request_id) if failed is None else failed(error)
        if not isinstance(frame, bytes):
            raise TypeError(f"it returned {_shown(frame)} instead of bytes")
    except (Exception, SystemExit) as fault:
        what = "stream_error()" if failed is None else "failed() of a stream"
        raise BrokenProtocol(
            protocol, f"{what} failed for {type(error).__name__}: {described(fault, protocol)}"
        ) from fault
    return frame


def check_answer(body: ReplyBody, status: int, headers: Mapping[str, str], content_type: str | None = None) -> bytes:
    """The bytes of `body`.

    Raises:
        TypeError: something is of the wrong type.
        ValueError: something cannot be sent.
    """
    if type(status) is not int or not 200 <= status <= 599:
        raise ValueError(f"the status is {_shown(status)} instead of a number from 200 to 599")
    if not isinstance(body, Mapping | str):
        raise TypeError(f"the body is {_shown(body)} instead of an object or a text")
    content = (body if isinstance(body, str) else dump_json(body)).encode()
    if content and status in (204, 205, 304):
        raise ValueError(f"an answer of the status {status} has no body")
    check_headers(headers)
    if content_type is not None and not _is_header_value(content_type):
        raise ValueError(f"the content type is {_shown(content_type)}")
    return content


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise `TypeError` or `ValueError` unless `headers` can be sent."""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers are {_shown(headers)} instead of a mapping")
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name) or not _is_header_value(value):
            raise ValueError(f"{_shown(name)}: {_shown(value)} is no header")


def described(error: BaseException, protocol: object = None) -> str:
    """`error` in one line: its kind, what it says, and where it was raised, if possible in the protocol's own code."""
    text = " ".join(str(error).split())
    text = text if len(text) <= _MESSAGE_CHARS else f"{text[:_MESSAGE_CHARS]}..."
    package = type(protocol).__module__.partition(".")[0]
    places = [
        (f"{frame.f_code.co_filename.rpartition('/')[2]}:{line}", str(frame.f_globals.get("__name__", "")))
        for frame, line in walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith("<frozen")  # the machinery of imports
    ]
    own = [place for place, module in places if module.partition(".")[0] == package]
    found = [*own[-1:], *(place for place, module in places[-1:] if module != __name__)]
    return f"{type(error).__name__}{': ' if text else ''}{text}{f' ({found[0]})' if found else ''}"


def _is_header_value(value: object) -> bool:
    return isinstance(value, str) and _HEADER_VALUE.fullmatch(value) is not None


def _shown(value: object) -> str:
    """A value of any kind in a few words."""
    if callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    if value is None or isinstance(value, str | int | float | bytes):
        text = ascii(value)
        return text if len(text) <= 60 else f"{text[:60]}..."
    return f"a {type(value).__qualname__}"
