"""Reads request bodies: whole, strict, and large ones on a thread, where what protocols make of them is made as well.

It knows HTTP bodies and JSON, no protocol. Invariants: no body keeps the event loop from other requests for longer than
a small one takes; of large ones so few are read at once that their objects have room.
"""

import traceback
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import trio
from quart.wrappers import Request
from quart_trio.wrappers.request import TrioBody, TrioRequest
from werkzeug.exceptions import RequestEntityTooLarge

from ninfer.conversation import InvalidRequest, RequestError, RequestTooLarge
from ninfer.protocols.plugin import Decoded, JSONValue
from ninfer.server.connection import dropped_body
from ninfer.server.json_reader import read_json

THREAD_BYTES = 1 << 14
"""Bodies from here on take milliseconds."""
LARGE_BYTES = 1 << 20
"""Bodies from here on take up to seconds: of 20 MiB, 100,000 messages. Smaller ones do not wait for them."""
THREADS = 2
"""For large bodies, and as many for those between."""


class WholeBody(TrioBody):
    """A body that is handed out without a copy: of hundreds of megabytes that stopped every stream for a second."""

    def __await__(self) -> Generator[Any, None, bytearray]:
        if self._must_raise is None:
            yield from self._complete.wait().__await__()
        if self._must_raise is not None:
            raise self._must_raise
        return self._data

    def clear(self) -> None:
        """Let go of the body; a caller that has it keeps it."""
        self._data = bytearray()


class BodyRequest(TrioRequest):
    """A request whose body is read here."""

    body_class = WholeBody


class BodyReader:
    """The reader of one application."""

    def __init__(self) -> None:
        self._large, self._between = trio.CapacityLimiter(THREADS), trio.CapacityLimiter(THREADS)

    async def read(
        self, request: Request, decode: Callable[[JSONValue], Decoded], texts: tuple[str, ...] = ()
    ) -> Decoded:
        """What `decode` makes of the body of `request`; `texts` as in `Call.decoded`.

        Raises:
            InvalidRequest: it is no JSON, or encoded in a way that is not read here.
            RequestTooLarge: it is over the limit.
            RequestError: the connection has given it up: there was no room for it, or nothing came of it.
        """
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise InvalidRequest("the request body must not be compressed", code="unsupported_content_encoding")
        try:
            body: bytearray = await request.body
        except RequestEntityTooLarge:
            raise too_large(request) from None
        finally:
            request.body.clear()
        dropped = dropped_body(request)
        if dropped is not None:
            body.clear()
            raise dropped
        if len(body) < THREAD_BYTES:
            return decode(read_json(body, texts))
        return await trio.to_thread.run_sync(
            partial(_decoded, body, decode, texts),
            limiter=self._between if len(body) < LARGE_BYTES else self._large,
            abandon_on_cancel=True,
        )


def too_large(request: Request) -> RequestTooLarge:
    """The refusal of a body that is over the limit."""
    return RequestTooLarge(f"the request body is over the limit of {request.max_content_length} bytes")


def _decoded(body: bytearray, decode: Callable[[JSONValue], Decoded], texts: tuple[str, ...]) -> Decoded:
    try:
        value = read_json(body, texts)
    finally:
        body.clear()  # its memory is free while `decode` makes more, or while somebody looks at the error
    try:
        return decode(value)
    except RequestError as error:
        _let_go(error)
        raise
    finally:
        del value


def _let_go(error: BaseException) -> None:
    """Clear the frames that `error` was raised in: errors that know each other would keep the body's values in them."""
    found: list[BaseException | None] = [error]
    for one in found:
        if one is not None:
            traceback.clear_frames(one.__traceback__)
            found += [other for other in (one.__context__, one.__cause__) if other not in found]
            found += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
