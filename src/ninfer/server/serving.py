"""Serve an ASGI application with hypercorn's protocols until a stop, and then really end.

hypercorn's own loop has no hold on its connections: its writes are shielded from cancellation, so a client that had
stopped reading kept the process alive. This loop keeps the accepted sockets and closes them when the grace period
is over; nor does a fault in one connection end the others. It knows connections and no requests.
"""

import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import cast

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ASGIFramework, ConnectionState
from hypercorn.utils import parse_socket_addr, wrap_app

from ninfer.server.http1 import Http1

log = logging.getLogger(__name__)

IDLE_CONNECTION_S = 75
"""SDKs keep pools and come back later than hypercorn's 5 s, to a closed socket."""
HEADER_BYTES = 1 << 16


class Stop:
    """A stop of the server, asked for at most once. `on_stop` runs before the listeners close."""

    def __init__(self, on_stop: Callable[[], None] | None = None) -> None:
        self._on_stop = on_stop
        self._asked = trio.Event()

    def ask(self) -> None:
        """Stop the server. Idempotent."""
        if not self._asked.is_set():
            self._asked.set()
            if self._on_stop is not None:
                self._on_stop()

    async def wait(self) -> None:
        """Return once a stop has been asked for."""
        await self._asked.wait()


class OpenConnections:
    """The accepted sockets that are still open."""

    def __init__(self) -> None:
        self._streams: set[trio.SocketStream] = set()
        self._waiting = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def streams(self) -> frozenset[trio.SocketStream]:
        """What is open now."""
        return frozenset(self._streams)

    def add(self, stream: trio.SocketStream) -> None:
        """An accepted connection."""
        self._streams.add(stream)

    def discard(self, stream: trio.SocketStream) -> None:
        """A connection that is closed. Idempotent."""
        self._streams.discard(stream)
        self._waiting.unpark_all()

    async def wait_until_none(self) -> None:
        """Return when no connection is open."""
        await trio.lowlevel.checkpoint()
        while self._streams:
            await self._waiting.park()

    def close_all(self) -> None:
        """Close every socket: whoever waits in one, shielded or not, wakes with an error."""
        for stream in tuple(self._streams):
            stream.socket.close()


class ClientConnection(TCPServer):
    """hypercorn's connection in HTTP/1.1 alone, mended where it outlives its client.

    Its end waits for two tasks. The idle clock: a client that had left between two requests, or inside a header, kept
    its socket here for as long as an idle connection may live. And the reader, which is held back while bytes behind
    a request wait for the answer's end: when the answer could not be written any more, it was held back for ever.
    """

    _client_gone = False
    _reading: trio.CancelScope | None = None

    async def run(self) -> None:
        """Serve the connection to its end."""
        try:
            wire = self.stream.socket
            client, server = (parse_socket_addr(wire.family, name()) for name in (wire.getpeername, wire.getsockname))
            async with TaskGroup() as self._task_group:
                state = ConnectionState(self.state)
                self.protocol = Http1(  # type: ignore[assignment]  # what the wrapper would wrap
                    self.app,
                    self.config,
                    self.context,
                    self._task_group,
                    state,
                    False,
                    client,
                    server,
                    self.protocol_send,
                )
                await self.idle_task.restart(self._task_group, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass  # the client has reset the connection
        finally:
            await self._close()

    async def protocol_send(self, event: Event) -> None:
        """Pass on what the protocol sends; what cannot be written any more ends the reading too."""
        if isinstance(event, RawData):
            await self._write(event.data)
        # A clock that started now would run for nobody.
        elif not (self._client_gone and isinstance(event, Updated) and event.idle):
            await super().protocol_send(event)

    async def _write(self, data: bytes) -> None:
        async with self.send_lock:
            try:
                with trio.CancelScope(shield=True):  # a frame is never cut
                    await self.stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                await self.protocol.handle(Closed())
                if self._reading is not None:
                    self._reading.cancel()

    async def _read_data(self) -> None:
        with trio.CancelScope() as self._reading:
            await super()._read_data()
        self._client_gone = True
        await self.idle_task.stop()


async def serve(
    app: ASGIFramework,
    listeners: list[socket.socket],
    stop: Stop,
    *,
    grace_s: float,
    connections: OpenConnections | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer on `listeners` (of `open_listener`) until `stop`, then give running answers `grace_s` to leave."""
    open_connections = OpenConnections() if connections is None else connections
    config = _config()
    context = WorkerContext(None)
    wrapped = wrap_app(app, config.wsgi_max_body_size, "asgi")

    async def serve_connection(stream: trio.SocketStream) -> None:
        await _serve_connection(wrapped, config, context, stream, open_connections)

    async with trio.open_nursery() as answering:
        async with trio.open_nursery() as accepting:
            sockets = [trio.SocketListener(trio.socket.from_stdlib_socket(listener)) for listener in listeners]
            accepting.start_soon(partial(trio.serve_listeners, serve_connection, sockets, handler_nursery=answering))
            task_status.started()
            await stop.wait()
            accepting.cancel_scope.cancel()  # closes the listeners: new connections are refused from here
        await context.terminated.set()  # idle connections close now, the others after their answer
        with trio.move_on_after(grace_s):
            await open_connections.wait_until_none()
        answering.cancel_scope.cancel()
        open_connections.close_all()


async def _serve_connection(
    app: AppWrapper, config: Config, context: WorkerContext, stream: trio.SocketStream, connections: OpenConnections
) -> None:
    connections.add(stream)
    try:
        # Its annotation asks for TLS; a plain stream is what it gets from hypercorn's own loop, too.
        await ClientConnection(
            app, config, context, ConnectionState({}), cast("trio.SSLStream[trio.SocketStream]", stream)
        )
    except* OSError:
        pass  # the client has reset the connection: hypercorn lets some of these through
    except* Exception as group:
        log.error("a connection failed", exc_info=group)
    finally:
        stream.socket.close()  # under cancellation hypercorn leaves it open
        connections.discard(stream)


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("ninfer.http")
    config.keep_alive_timeout = IDLE_CONNECTION_S
    config.keep_alive_max_requests = 1 << 30
    config.h11_max_incomplete_size = HEADER_BYTES
    config.include_server_header = False
    return config
