"""A house that serves: engine, service, protocols and server from the start of the engine to the end of the process.

Invariants: the ready line comes when /health would answer 200; a stop ends the requests first, then the connections,
then the engine, and nothing that a client does can hold it up.
"""

import logging
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import trio

from ninfer.cli.assembly import House
from ninfer.cli.failure import Failure
from ninfer.cli.options import NetworkOptions, ServeOptions
from ninfer.engine.engine import RunningEngine
from ninfer.engine.types import DeviceLost
from ninfer.protocols.registry import ProtocolLoadError, RouteConflict, load_protocols
from ninfer.server.app import create_app
from ninfer.server.guards import LOOPBACK_NAMES, host_name
from ninfer.server.running import RunningCalls
from ninfer.server.serving import Stop, serve
from ninfer.server.settings import ServerSettings
from ninfer.server.sockets import listener_url

log = logging.getLogger(__name__)

DEVICE_LOST_STATUS = 1


async def run_house(house: House, listener: socket.socket, options: ServeOptions) -> int:
    """Serve until a signal or the loss of the device; the exit status.

    Raises:
        Failure: something that the user can mend keeps the server from starting.
    """
    running = RunningCalls()
    stop = Stop(running.stop)
    status = 0
    try:
        async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
            starting = trio.CancelScope()
            nursery.start_soon(_on_signals, (signal.SIGTERM, signal.SIGHUP), _both(stop.ask, starting.cancel))
            with starting:
                engine = await stack.enter_async_context(house.open_engine(options.model.engine))
            if not starting.cancelled_caught:
                nursery.start_soon(_on_signals, (signal.SIGINT,), stop.ask)
                nursery.start_soon(_stop_with_device, engine, stop)
                service = house.service(engine, options)
                settings = server_settings(options.network)
                app = create_app(
                    service,
                    load_protocols(service, names=options.network.protocols or None),
                    settings=settings,
                    running=running,
                )
                async with trio.open_nursery() as serving:
                    await serving.start(partial(serve, app, [listener], stop, grace_s=settings.grace_s))
                    log.info("ready: %s serves %s", listener_url(listener), house.card.id)
                if isinstance(engine.failure, DeviceLost):
                    status = DEVICE_LOST_STATUS
            nursery.cancel_scope.cancel()
    except* (ProtocolLoadError, RouteConflict, OSError) as group:
        raise Failure(str(_first(group))) from group
    return status


def server_settings(network: NetworkOptions) -> ServerSettings:
    """The HTTP side's limits. On loopback the Host header is checked, since no key keeps web pages out (D43)."""
    names = LOOPBACK_NAMES | {network.host.lower()} | {host_name(name) for name in network.allowed_hosts}
    on_loopback = network.host.lower() in LOOPBACK_NAMES or network.host.startswith("127.")
    return ServerSettings(
        max_request_bytes=network.max_request_mib << 20,
        allowed_hosts=names if on_loopback else None,
    )


async def _on_signals(signals: tuple[signal.Signals, ...], act: Callable[[], None]) -> None:
    with trio.open_signal_receiver(*signals) as received:
        async for number in received:
            log.info("%s: stopping", signal.Signals(number).name)
            act()


async def _stop_with_device(engine: RunningEngine, stop: Stop) -> None:
    """A lost device ends the process (LIFE-027); any other failure leaves it up, with /health at 503."""
    failure = await engine.wait_stopped()
    if isinstance(failure, DeviceLost):
        log.critical("the device is lost: %s", failure)
        stop.ask()


def _both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    def act() -> None:
        one()
        other()

    return act


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
