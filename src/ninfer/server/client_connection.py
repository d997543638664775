"""One client's connection: reads, writes, and its clocks. What the bytes mean is `http1`'s business.

hypercorn's connection, mended where it outlives its client or is shorter than its answer: departures are seen while
bytes behind a request wait for the answer's end, a write has a clock, and a connection that is closed before its client
has sent everything lets the answer arrive (a reset would take it away).

Invariant: whatever a client does or leaves undone, each state of its connection but an answer in the making ends by
itself.
"""

import logging
import math

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import parse_socket_addr

from ninfer.server.connection import ABORT
from ninfer.server.http1 import Http1, Turns

log = logging.getLogger(__name__)

IDLE_CONNECTION_S = 75
"""SDKs keep pools and come back later than hypercorn's 5 s, to a closed socket."""
FIRST_HEAD_S = 15
"""A client that connects has a request; only later requests are waited for as long as pools keep connections."""
WRITE_S = 75
"""Time for each piece of an answer, of 64 KiB at most: slower clients are taken for ones that stopped reading."""
LINGER_SILENCE_S = 1
LINGER_S = 30
"""After an early answer the rest of a body is read and dropped: its longest pause, and the whole time."""


class ClientConnection(TCPServer):
    """An accepted connection, in HTTP/1.1 alone."""

    def __init__(
        self, app: AppWrapper, config: Config, context: WorkerContext, stream: trio.SocketStream, turns: Turns
    ) -> None:
        """Raises OSError where the client has left already."""
        # Its annotation asks for TLS; a plain stream is what it gets from hypercorn's own loop, too.
        state = ConnectionState({ABORT: stream.socket.close})
        super().__init__(app, config, context, state, stream)  # type: ignore[arg-type]
        self._task_group = TaskGroup()
        self._reading = trio.CancelScope()
        self._lingers_until = -math.inf
        self._client_gone = False
        self._had_request = False
        wire = stream.socket
        client, server = (parse_socket_addr(wire.family, name()) for name in (wire.getpeername, wire.getsockname))
        self.address = "" if client is None else client[0]
        """The client's, without its port."""
        self.since_s = trio.current_time()
        """When it began to wait for a request, or for the rest of one."""
        self.protocol: Http1 = Http1(  # type: ignore[assignment]  # what hypercorn's wrapper would wrap
            self.app,
            self.config,
            self.context,
            self._task_group,
            ConnectionState(self.state),
            False,
            client,
            server,
            self.protocol_send,
            turns=turns,
            receive=self._receive,
            client_left=self._lose_client,
        )

    @property
    def takes_in(self) -> bool:
        """Whether no request of it is complete, so that no work is done for it."""
        return self.protocol.takes_in

    async def run(self) -> None:
        """Serve the connection to its end."""
        try:
            async with self._task_group:
                await self.idle_task.restart(self._task_group, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass  # the client has reset the connection
        finally:
            await self._close()

    async def protocol_send(self, event: Event) -> None:
        """Pass on what the protocol sends, and keep the clocks by what it tells."""
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Closed):
            await self.protocol.handle(Closed())
            await self._hang_up()
        elif isinstance(event, Updated):
            self.since_s = trio.current_time()
            self._had_request = True
            if not event.idle:
                await self.idle_task.stop()
            elif not self._client_gone:  # a clock for a client that is gone would measure nothing
                await self.idle_task.restart(self._task_group, self._idle_timeout)

    async def _write(self, data: bytes) -> None:
        async with self.send_lock:
            with trio.move_on_after(WRITE_S, shield=True) as writing:  # shielded: a frame is never cut
                try:
                    await self.stream.send_all(data)
                    return
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass
            if writing.cancelled_caught:
                log.info("a client was cut that took less than %d bytes in %d s", len(data), WRITE_S)
                self.stream.socket.close()
            await self._lose_client()

    async def _read_data(self) -> None:
        with self._reading:
            while data := await self._receive():
                await self.protocol.handle(RawData(data))
                if self._lingers_until > 0:
                    self._reading.deadline = min(self._lingers_until, trio.current_time() + LINGER_SILENCE_S)
            await self.protocol.handle(RawData(b""))
        await self.protocol.handle(Closed())
        self._client_gone = True
        await self.idle_task.stop()

    async def _receive(self) -> bytes:
        try:
            return bytes(await self.stream.receive_some(MAX_RECV))
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            return b""

    async def _lose_client(self) -> None:
        """End all work for the client. The reader may wait for the end of an answer that no client can take."""
        await self.protocol.handle(Closed())
        self._reading.cancel()

    async def _hang_up(self) -> None:
        """Announce the end of the answer, and give the client time to read it."""
        try:
            await self.stream.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            await self.stream.aclose()
            return
        now_s = trio.current_time()
        self._lingers_until = now_s + LINGER_S
        self._reading.deadline = now_s + LINGER_SILENCE_S

    async def _idle_timeout(self) -> None:
        with trio.move_on_after(IDLE_CONNECTION_S if self._had_request else FIRST_HEAD_S):
            await self.context.terminated.wait()
        with trio.CancelScope(shield=True):
            await self._initiate_server_close()
