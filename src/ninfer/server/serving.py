"""Serve an ASGI application with hypercorn's protocols until a stop, and then really end.

hypercorn's own loop has no hold on its connections: its writes are shielded from cancellation, so a client that had
stopped reading kept the process alive. This loop keeps the accepted sockets and closes them when the grace period
is over; nor does a fault in one connection end the others. It knows connections and no requests.
"""

import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework
from hypercorn.utils import wrap_app

from ninfer.server.client_connection import ClientConnection
from ninfer.server.http1 import HEAD_BYTES, Turns
from ninfer.server.open_connections import OpenConnections

log = logging.getLogger(__name__)

NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Why nothing can be accepted for the moment."""


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
    turns = Turns()

    async def serve_connection(stream: trio.SocketStream) -> None:
        made = partial(ClientConnection, wrapped, config, context, stream, turns)
        await _serve_connection(made, stream, open_connections)

    async with trio.open_nursery() as answering:
        async with trio.open_nursery() as accepting:
            for listener in listeners:
                accepting.start_soon(_accept, listener, serve_connection, open_connections, answering)
            task_status.started()
            await stop.wait()
            accepting.cancel_scope.cancel()  # closes the listeners: new connections are refused from here
        await context.terminated.set()  # idle connections close now, the others after their answer
        with trio.move_on_after(grace_s):
            await open_connections.wait_until_none()
        answering.cancel_scope.cancel()
        open_connections.close_all()


async def _accept(
    listener: socket.socket,
    serve_connection: Callable[[trio.SocketStream], Awaitable[None]],
    connections: OpenConnections,
    answering: trio.Nursery,
) -> None:
    async with trio.SocketListener(trio.socket.from_stdlib_socket(listener)) as accepted:
        while True:
            try:
                stream = await accepted.accept()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                connections.make_room()  # somebody else in this process has taken the descriptors
                await trio.sleep(0.1)
            else:
                answering.start_soon(serve_connection, stream)


async def _serve_connection(
    made: Callable[[], ClientConnection], stream: trio.SocketStream, connections: OpenConnections
) -> None:
    try:
        connection = made()
        if connections.add(connection, stream):
            await connection.run()
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
    config.keep_alive_max_requests = 1 << 30
    config.h11_max_incomplete_size = HEAD_BYTES
    config.include_server_header = False
    return config
