"""A house that serves: engine, service, protocols and server from the start of the engine to the end of the process.

Invariants: the ready line comes when /health would answer 200; a stop ends the requests first, then the connections,
then the engine, and nothing that a client does can hold it up.
"""

import logging
import signal
import socket
from contextlib import AsyncExitStack
from functools import partial

import attrs
import trio

from ninfer.cli.assembly import House
from ninfer.cli.failure import FAILED_STATUS, INTERRUPTED_STATUS, Failure
from ninfer.cli.options import NetworkOptions, ServeOptions
from ninfer.engine.engine import RunningEngine
from ninfer.engine.types import DeviceLost
from ninfer.protocols.registry import ProtocolLoadError, RouteConflict, load_protocols
from ninfer.server.app import create_app
from ninfer.server.hosts import LOOPBACK_NAMES, host_name, is_loopback
from ninfer.server.running import RunningCalls
from ninfer.server.serving import Stop, serve
from ninfer.server.settings import ServerSettings
from ninfer.server.sockets import listener_url

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class End:
    """How a house ended."""

    status: int = 0
    in_start: bool = False
    """The engine was not ready yet: its thread may still be inside a compiler, which nothing can interrupt."""


async def run_house(house: House, listener: socket.socket, options: ServeOptions, api_key: str | None = None) -> End:
    """Serve until a signal or the loss of the device.

    Raises:
        Failure: something that the user can mend keeps the server from starting.
    """
    try:
        return await _run(house, listener, options, api_key)
    except ExceptionGroup as group:
        cause = _single_cause(group)
        if isinstance(cause, Failure):
            raise cause from group
        if isinstance(cause, ProtocolLoadError | RouteConflict | OSError):
            raise Failure(str(cause)) from group
        raise


async def _run(house: House, listener: socket.socket, options: ServeOptions, api_key: str | None) -> End:
    address = listener.getsockname()[0]
    running = RunningCalls()
    stop = Stop(running.stop)
    start = Start(stop)
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        await nursery.start(_on_signals, start)
        with start.scope:
            engine = await stack.enter_async_context(house.open_engine(options.model.engine))
        start.over = True
        if not start.scope.cancelled_caught:
            nursery.start_soon(_stop_with_device, engine, stop)
            service = house.service(engine, options)
            calls = service.capacity.places + service.count_capacity.places
            settings = server_settings(options.network, calls=calls, address=address, api_key=api_key)
            app = create_app(
                service,
                load_protocols(service, names=options.network.protocols or None),
                settings=settings,
                running=running,
            )
            async with trio.open_nursery() as serving:
                await serving.start(partial(serve, app, [listener], stop, grace_s=settings.grace_s))
                log.info("ready: %s serves %s", listener_url(listener), house.card.id)
        nursery.cancel_scope.cancel()
    if start.scope.cancelled_caught:
        return End(status=INTERRUPTED_STATUS if start.interrupted else 0, in_start=True)
    return End(status=FAILED_STATUS if isinstance(engine.failure, DeviceLost) else 0)


@attrs.define
class Start:
    """The time until the engine is ready, in which a signal ends it at once and asks nobody (LIFE-007)."""

    stop: Stop
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    over: bool = False
    interrupted: bool = False

    def signalled(self, number: int) -> None:
        """End the start, or the serving that followed it."""
        if not self.over:
            self.interrupted = number == signal.SIGINT
            self.scope.cancel()
        self.stop.ask()


def server_settings(network: NetworkOptions, *, calls: int, address: str, api_key: str | None) -> ServerSettings:
    """The HTTP side's limits, for at most `calls` generations and counts at once, bound to `address`.

    On loopback without a key the Host header is checked: nothing else keeps out pages that rebind their name (D43).
    """
    added = filter(None, map(host_name, network.allowed_hosts))
    names = LOOPBACK_NAMES | {network.host.lower(), *added}
    return ServerSettings(
        max_request_bytes=network.max_request_mib << 20,
        body_room_bytes=calls * (network.max_request_mib << 20),
        allowed_hosts=names if is_loopback(address) and api_key is None else None,
        api_key=api_key,
        cors=network.cors,
    )


async def _on_signals(start: Start, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
        task_status.started()
        async for number in received:
            log.info("%s: stopping", signal.Signals(number).name)
            start.signalled(number)


async def _stop_with_device(engine: RunningEngine, stop: Stop) -> None:
    """A lost device ends the process (LIFE-027); any other failure leaves it up, with /health at 503."""
    failure = await engine.wait_stopped()
    if isinstance(failure, DeviceLost):
        log.critical("the device is lost: %s", failure)
        stop.ask()


def _single_cause(group: BaseException) -> BaseException:
    """What is wrong, if it is one thing."""
    while isinstance(group, BaseExceptionGroup) and len(group.exceptions) == 1:
        group = group.exceptions[0]
    return group
