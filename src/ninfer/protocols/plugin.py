"""The plugin interface: all that a protocol may see of the server and all that the server asks of a protocol.

A protocol is a class registered under the entry-point group `ninfer.protocols`. It is built with the `ProtocolHost`
and names its routes; a route's handler takes a `Call`, decodes its body, runs `host.generate(...)` inside its own
task, and answers by `call.reply` or by frames through `call.stream()`. The built-in protocols use nothing else.

Invariant: a handler answers exactly once. It may raise `RequestError` at any moment: before an answer has begun the
server turns it into `protocol.error(...)`, afterwards into `protocol.stream_error(...)` and the end of the stream.
Cancellation of the handler means that the client is gone. `mounting` checks what a protocol gives.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol as Interface
from typing import TypeAlias, TypeVar

import attrs

from ninfer.conversation import JSONValue as JSONValue
from ninfer.conversation import RequestError
from ninfer.service.host import ProtocolHost as ProtocolHost

ENTRY_POINT_GROUP = "ninfer.protocols"

Decoded = TypeVar("Decoded")


ReplyBody: TypeAlias = "Mapping[str, object] | str"
"""A whole body: an object, which goes out as JSON, or text, which goes out as it is (`text/plain; charset=utf-8`)."""


@attrs.frozen(kw_only=True)
class WireError:
    """An error as it goes out: a status from 400 on, a body, headers beside the request id."""

    status: int
    body: ReplyBody
    headers: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class StreamForm:
    """What the streams of a route are: how they are called, and what is sent while there is nothing to say."""

    content_type: str
    keep_alive: bytes | None = attrs.field(validator=attrs.validators.optional(attrs.validators.min_len(1)))
    """Sent after each 5 s of silence. Readers must skip it; None where the format has nothing that they skip."""


EVENT_STREAM = StreamForm(content_type="text/event-stream", keep_alive=b": keep-alive\n\n")
"""Server-sent events, with a comment in silences (HTTP-011)."""
NDJSON = StreamForm(content_type="application/x-ndjson", keep_alive=None)
"""One JSON value a line. Nothing can be sent in a silence: readers parse every line."""


class FrameSink(Interface):
    """Where the frames of one stream go."""

    async def send(self, frame: bytes) -> None:
        """Queue one complete frame (`data: ...\\n\\n`, or a line of JSON). Never waits for the client.

        Headers leave with the first frame, or with the first keep-alive 5 s after `Call.stream` was entered.
        """
        ...


StreamFailed: TypeAlias = Callable[[RequestError], bytes]
"""Makes the last bytes of a stream that has begun and fails: one or more complete frames."""


class Call(Interface):
    """One HTTP request on its way through a protocol."""

    @property
    def request_id(self) -> str:
        """Unique id of this request; the server sends it back in the protocol's request-id header."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Request headers, looked up without regard to case."""
        ...

    @property
    def path_args(self) -> Mapping[str, str]:
        """Values of the route's placeholders."""
        ...

    @property
    def query(self) -> Mapping[str, str]:
        """Query parameters; the last one of a name wins."""
        ...

    async def decoded(self, decode: Callable[[JSONValue], Decoded], *, texts: tuple[str, ...] = ()) -> Decoded:
        """What `decode` makes of the body, read strictly (UTF-8, no NaN, no duplicate surprises, bounded depth).

        `texts` are the places of text, such as `messages[].content`, or `calls[].arguments.**` for everything there:
        half of a surrogate pair becomes U+FFFD in them, and is refused elsewhere.
        A large body is read and decoded on a thread: `decode` must not await, nor touch what others change meanwhile.

        Raises:
            InvalidRequest: the body is not JSON.
            RequestTooLarge: the body is over the limit.
            Exception: what `decode` raises.
        """
        ...

    async def reply(
        self,
        body: ReplyBody,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> None:
        """Answer with one body: an object as JSON, or a text. `content_type` calls it something else than usual."""
        ...

    def stream(
        self, *, headers: Mapping[str, str] | None = None, failed: StreamFailed | None = None
    ) -> AbstractAsyncContextManager[FrameSink]:
        """Answer with a stream of the route's form (`Route.streams`) that ends when the block is left.

        `failed` stands in for `Protocol.stream_error` in this one stream: for protocols whose last frame depends on
        what was sent before it.
        """
        ...


Handler: TypeAlias = Callable[[Call], Awaitable[None]]


@attrs.frozen
class Route:
    """One method and path (`/v1/responses/{id}`) of a protocol. Paths under /v1 also answer at /v1 + path.

    A placeholder takes one segment of the path; `{id:path}` takes all the rest, slashes included.
    """

    method: str
    path: str
    handler: Handler
    summary: str = attrs.field(default="", kw_only=True)
    """One line for the OpenAPI document."""
    body: type[object] | None = attrs.field(default=None, kw_only=True)
    """The wire type of the body, for the same document; None where there is no body, or none with a known form."""
    streams: StreamForm = attrs.field(default=EVENT_STREAM, kw_only=True)
    """The form of what the handler sends through `Call.stream`, if it does."""


class Protocol(Interface):
    """What the server asks of a protocol. `name` is its entry point's name; it is constructed as `cls(host)`."""

    name: str
    request_id_header: str
    """Name of the header that carries the request's id on every answer of these routes (`x-request-id`)."""

    def routes(self) -> Sequence[Route]:
        """All routes; two protocols that claim one method and path fail the start."""
        ...

    def error(self, error: RequestError, request_id: str) -> WireError:
        """The error as a whole answer."""
        ...

    def stream_error(self, error: RequestError, request_id: str) -> bytes:
        """The error as the last frame of a stream that has begun."""
        ...


ProtocolFactory: TypeAlias = Callable[[ProtocolHost], Protocol]
