"""HTTP/1.1 of one connection: hypercorn's, without the protocols that it would change to, and never without words.

HTTP/2 has flow control of its own, which hypercorn does not bound: a client that gives no window keeps whole answers
in our memory for as long as it likes. No client needs it without TLS, and none needs websockets here; a request to
change to either is answered as the HTTP/1.1 request that it is. It knows bytes and headers, no application.
"""

import h11
from hypercorn.protocol.events import Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream

from ninfer.conversation import InvalidRequest
from ninfer.protocols.openai_errors import openai_error
from ninfer.protocols.sse import dump_json
from ninfer.server.connection import new_request_id
from ninfer.server.envelopes import REQUEST_ID_HEADER

_SAID = {431: "the head of the request is too large", 501: "of transfer encodings only chunked is read"}


class Http1(H11Protocol):
    """One connection's protocol."""

    async def _check_protocol(self, event: h11.Request) -> None:
        """Change to no other protocol."""

    async def _create_stream(self, request: h11.Request) -> None:
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
