"""The plugin interface: all that a protocol may see of the server and all that the server asks of a protocol.

A protocol is a class registered under the entry-point group `ninfer.protocols`. It is built with the `ProtocolHost`
and names its routes; a route's handler takes a `Call`, decodes its body, runs `host.generate(...)` inside its own
task, and answers by `call.reply` or by frames through `call.stream()`. The built-in protocols use nothing else.

Invariant: a handler answers exactly once. It may raise `RequestError` at any moment: before an answer has begun the
server turns it into `protocol.error(...)`, afterwards into `protocol.stream_error(...)` and the end of the stream.
Cancellation of the handler means that the client is gone.
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


@attrs.frozen(kw_only=True)
class WireError:
    """An error as it goes out: status, JSON body, headers beside the request id."""

    status: int
    body: Mapping[str, object]
    headers: Mapping[str, str] = attrs.field(factory=dict)


class FrameSink(Interface):
    """Where the frames of one event stream go."""

    async def send(self, frame: bytes) -> None:
        """Queue one complete SSE frame (`data: ...\\n\\n`). Waits while the client's connection is full.

        Headers leave with the first frame, or with the first keep-alive comment 5 s after `Call.stream` was entered.
        """
        ...


StreamFailed: TypeAlias = Callable[[RequestError], bytes]
"""Makes the last bytes of a stream that has begun and fails: one or more complete SSE frames."""


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
        self, body: Mapping[str, object], *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with one JSON body."""
        ...

    def stream(
        self, *, headers: Mapping[str, str] | None = None, failed: StreamFailed | None = None
    ) -> AbstractAsyncContextManager[FrameSink]:
        """Answer with an event stream that ends when the block is left.

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
