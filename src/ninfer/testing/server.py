"""A real server on loopback, for tests whose client wants a socket: everything but the engine and the command line.

It knows the server, no protocol.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from ninfer.protocols.plugin import Protocol
from ninfer.protocols.registry import load_protocols
from ninfer.server.app import create_app
from ninfer.server.open_connections import OpenConnections
from ninfer.server.running import RunningCalls
from ninfer.server.serving import Stop, serve
from ninfer.server.settings import ServerSettings
from ninfer.server.sockets import listener_url, open_listener
from ninfer.service.host import ServiceHost


@attrs.frozen(kw_only=True)
class RunningServer:
    """A server that answers under `base_url` as long as its block lasts."""

    base_url: str
    """Without /v1."""
    connections: OpenConnections
    running: RunningCalls
    stop: Stop

    @property
    def address(self) -> tuple[str, int]:
        """Where to connect a socket."""
        host, _, port = self.base_url.removeprefix("http://").rpartition(":")
        return host, int(port)


@asynccontextmanager
async def running_server(
    host: ServiceHost,
    protocols: Sequence[Protocol] | None = None,
    *,
    settings: ServerSettings | None = None,
    address: str = "127.0.0.1",
    connections: OpenConnections | None = None,
) -> AsyncIterator[RunningServer]:
    """Serve `protocols` (None: all that are installed) on a port of `address` that the system chooses."""
    settings = settings or ServerSettings(grace_s=1.0)
    running = RunningCalls()
    app = create_app(host, load_protocols(host) if protocols is None else protocols, settings=settings, running=running)
    listener = open_listener(address, 0)
    stop = Stop(running.stop)
    connections = OpenConnections() if connections is None else connections
    server = RunningServer(base_url=listener_url(listener), connections=connections, running=running, stop=stop)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, app, [listener], stop, grace_s=settings.grace_s, connections=connections))
        yield server
        stop.ask()


async def until(condition: Callable[[], bool], at_most_s: float = 15) -> None:
    """Wait for something that real sockets bring about and that nothing here is told of."""
    with trio.fail_after(at_most_s):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await trio.sleep(0.002)
