"""HTTP/1.1 of one connection: hypercorn's, without the protocols that it would change to, and never without words.

HTTP/2 has flow control of its own, which hypercorn does not bound: a client that gives no window keeps whole answers
in our memory for as long as it likes. No client needs it without TLS, and none needs websockets here; a request to
change to either is answered as the HTTP/1.1 request that it is. It knows bytes and headers, no application.

Invariant: what comes behind a request neither spoils its answer (RFC 9112, 2.2 and 9.6) nor hides that its client has
left, and a body in tiny pieces takes no more of the event loop than its turns.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import h11
import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream

from ninfer.conversation import InvalidRequest
from ninfer.protocols.openai_errors import openai_error
from ninfer.protocols.sse import dump_json
from ninfer.server.connection import new_request_id
from ninfer.server.envelopes import REQUEST_ID_HEADER

HEAD_BYTES = 1 << 16
"""Of a request's head. h11 looks only at heads that came in pieces."""
PIECES = 64
"""Pieces of a body that are parsed in one go: about a millisecond's work, whatever their size."""
FULL_PIECE_BYTES = 1 << 10
"""Pieces of this size cost nothing to speak of."""
TURN_S = 0.005
OVERRUN_S = 1
"""A client that has its answer may send the next request before the answer has ended here."""

_SAID = {
    431: "the head of the request is too large",
    501: "the only transfer encoding that is read is chunked",
    505: "this server speaks HTTP/1.1 and HTTP/1.0",
}


class Turns:
    """Turns of the connections that send bodies in tiny pieces, or bytes that are not read: one has a turn at a time.

    The parser takes as long for a byte as for a kilobyte. Without turns four clients that send single bytes keep the
    interpreter from the engine's thread, and every stream stands still for a second at a time.
    """

    def __init__(self) -> None:
        self._one = trio.Lock()

    async def next(self) -> None:
        """Wait for a turn."""
        async with self._one:
            await trio.sleep(TURN_S)


class Http1(H11Protocol):
    """One connection's protocol."""

    def __init__(
        self,
        *arguments: Any,
        turns: Turns,
        receive: Callable[[], Awaitable[bytes]],
        client_left: Callable[[], Awaitable[None]],
    ) -> None:
        """`receive` gives more of what the client sends, nothing once it has left; `client_left` is told of that."""
        super().__init__(*arguments)
        self._turns = turns
        self._receive = receive
        self._client_left = client_left
        self._pieces_owed = 0
        """Pieces that were parsed beyond those that their bytes pay for."""
        self._head_begun = False
        self._behind = bytearray()
        """Bytes that came behind a request that is being answered, and that h11 has not got yet."""
        self._too_much_behind = False
        self._closing = False

    @property
    def takes_in(self) -> bool:
        """Whether no request is complete: the client may still send one, or the rest of one."""
        return self.connection.their_state in (h11.IDLE, h11.SEND_BODY)

    async def handle(self, event: Event) -> None:
        """Take in bytes, or the end of the connection; what can be no request of this connection is dropped."""
        if not isinstance(event, RawData):
            await super().handle(event)
            return
        if self._closing or self.connection.their_state is h11.MUST_CLOSE:
            return
        if event.data:
            self._parse(event.data)
        else:
            self.connection.receive_data(b"")
        await self._handle_events()

    def _parse(self, data: bytes) -> None:
        """Hand `data` to the parser, without empty lines before a request."""
        if self.connection.their_state is h11.IDLE and not self._head_begun:
            data = data.lstrip(b"\r\n")
            self._head_begun = bool(data)
        if data:
            self.connection.receive_data(data)

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of the answer; one that comes before the end of the body is the last of its connection."""
        if isinstance(event, Response) and self.connection.their_state is h11.SEND_BODY:
            self.keep_alive_requests = self.config.keep_alive_max_requests
        await super().stream_send(event)

    async def _handle_events(self) -> None:
        pieces: list[bytes] = []
        while not self._closing:
            if self.connection.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=self.config.response_headers("h11"))
                await self._send_h11_event(go_on)
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError as error:
                if self.connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await self._send_error_response(error.error_status_hint)
                await self._close()
                return
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            if pieces and (len(pieces) == PIECES or not isinstance(event, h11.Data)):
                await self._pass_on(pieces)
                pieces = []
            if isinstance(event, h11.Request):
                self._head_begun, self._pieces_owed = False, 0
                await self.send(Updated(idle=False))
                await self._create_stream(event)
            elif isinstance(event, h11.EndOfMessage):
                if self.stream is not None:
                    await self.stream.handle(EndBody(stream_id=STREAM_ID))
                if self.connection.their_state is h11.MUST_CLOSE:
                    return
            elif event is h11.PAUSED:
                await self._wait_for_answer()
            elif not isinstance(event, h11.Data):
                return  # there are no more bytes, for now or for ever

    async def _pass_on(self, pieces: list[bytes]) -> None:
        body = b"".join(pieces)
        if self.stream is not None:
            await self.stream.handle(Body(stream_id=STREAM_ID, data=body))
        self._pieces_owed = max(0, self._pieces_owed + len(pieces) - len(body) // FULL_PIECE_BYTES)
        if self._pieces_owed >= PIECES:
            self._pieces_owed -= PIECES
            await self._turns.next()

    async def _wait_for_answer(self) -> None:
        """Wait until the answer before is complete: bytes of a next request are there already."""
        await self.can_read.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_behind)
            await self.can_read.wait()
            nursery.cancel_scope.cancel()
        if not self._closing:
            self._parse(bytes(self._behind))
        self._behind.clear()

    async def _read_behind(self) -> None:
        """Read on, since the client's departure lies behind all that it has sent; keep what another head may take."""
        while len(self._behind) <= self.config.h11_max_incomplete_size and (data := await self._receive()):
            self._behind += data
        if len(self._behind) > self.config.h11_max_incomplete_size:
            await trio.sleep(OVERRUN_S)
            if self.can_read.is_set():
                return
            self._too_much_behind = True
            self.keep_alive_requests = self.config.keep_alive_max_requests  # it cannot be answered any more
            self._behind.clear()
            while await self._receive():
                await self._turns.next()
        await self._client_left()

    async def _maybe_recycle(self) -> None:
        await self._close_stream()
        complete = self.connection.our_state is h11.DONE and self.connection.their_state is h11.DONE
        if not complete or self._too_much_behind or self.context.terminated.is_set():
            await self._close()
            return
        behind = self.connection.trailing_data[0]
        self._head_begun = False
        if behind.startswith((b"\r", b"\n")):  # h11 takes them for a request, and has no way to give them back
            self.connection = h11.Connection(h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size)
            self._parse(behind)
        else:
            self.connection.start_next_cycle()
            self._head_begun = bool(behind)
        await self.can_read.set()
        await self.send(Updated(idle=True))

    async def _close(self) -> None:
        self._closing = True
        await self.can_read.set()
        await self.send(Closed())

    async def _create_stream(self, request: h11.Request) -> None:
        refused = (
            505 if request.http_version not in (b"1.0", b"1.1") else 431 if _head_bytes(request) > HEAD_BYTES else 0
        )
        if refused:
            await self._send_error_response(refused)
            await self._close()
            return
        # By RFC 9112, 6.3: another reader of these bytes may have seen the request end elsewhere.
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
            self.keep_alive_requests = self.config.keep_alive_max_requests
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()

    async def _send_error_response(self, status_code: int) -> None:
        error = InvalidRequest(_SAID.get(status_code, "this is not HTTP/1.1"), code="invalid_http")
        body = dump_json(openai_error(error).body).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            (REQUEST_ID_HEADER.encode(), new_request_id().encode()),
        ]
        headers += self.config.response_headers("h11")
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())


def _head_bytes(request: h11.Request) -> int:
    """The size of a head, spaces around its values left out."""
    line = len(request.method) + len(request.target) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in request.headers) + len("\r\n")
