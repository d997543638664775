"""A house that serves: engine, service, protocols and server from the start of the engine to the end of the process.

Invariants: the server answers from its first second on, with 503 until the ready line comes, which is when /health
would answer 200; a stop ends the requests first, then the connections, then the engine, and nothing that a client does
can hold it up.
"""

import json
import logging
import shlex
import signal
import socket
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import attrs
import trio
from rich.console import Console

from ninfer.cli.assembly import House
from ninfer.cli.failure import FAILED_STATUS, INTERRUPTED_STATUS, Failure
from ninfer.cli.options import DEFAULT_URL, NetworkOptions, ServeOptions
from ninfer.cli.starting import StartTimes, moving_line
from ninfer.engine.engine import RunningEngine
from ninfer.engine.opening import OpeningEngine
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
    except Exception as raised:
        cause = _single_cause(raised)
        if isinstance(cause, Failure):
            raise cause from raised
        if isinstance(cause, ProtocolLoadError | RouteConflict | OSError):
            raise Failure(str(cause)) from raised
        raise


async def _run(house: House, listener: socket.socket, options: ServeOptions, api_key: str | None) -> End:
    address = listener.getsockname()[0]
    running = RunningCalls()
    stop = Stop(running.stop)
    start = Start(stop)
    opening = OpeningEngine(house.limits)
    service = house.service(opening, options)
    calls = service.capacity.places + service.count_capacity.places
    settings = server_settings(options.network, calls=calls, address=address, api_key=api_key)
    protocols = load_protocols(service, names=options.network.protocols or None)
    app = create_app(service, protocols, settings=settings, running=running)
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        await nursery.start(_on_signals, start)
        async with trio.open_nursery() as serving:
            await serving.start(partial(serve, app, [listener], stop, grace_s=settings.grace_s))
            url, times, begin_s = listener_url(listener), StartTimes(house.cache_dir), trio.current_time()
            log.info("loading %s, %s; %s answers 503 until then", house.card.id, wait_text(times, house.card.id), url)
            with start.scope, moving_line(Console(stderr=True), f"loading {house.card.id}"):
                engine = await stack.enter_async_context(house.open_engine(options.model.engine))
            start.over = True
            if start.scope.cancelled_caught:
                nursery.cancel_scope.cancel()  # no client was served yet
            else:
                opening.become(engine)
                nursery.start_soon(_stop_with_device, engine, stop)
                times.note(house.card.id, trio.current_time() - begin_s)
                log.info("ready: %s serves %s", url, house.card.id)
                for line in things_to_try(url, house.card.id, needs_key=api_key is not None):
                    log.info("  %s", line)
        nursery.cancel_scope.cancel()
    if start.scope.cancelled_caught:
        return End(status=INTERRUPTED_STATUS if start.interrupted else 0, in_start=True)
    return End(status=FAILED_STATUS if isinstance(engine.failure, DeviceLost) else 0)


def things_to_try(url: str, model: str, *, needs_key: bool) -> tuple[str, ...]:
    """What somebody who sees a server for the first time may do with it. Shows no key."""
    key = " -H 'authorization: Bearer KEY'" if needs_key else ""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
    where = "" if url == DEFAULT_URL else f" --url {url}"
    return (
        f"talk to it: {python()} -m ninfer chat{where}",
        f"one request: curl {url}/v1/chat/completions -H 'content-type: application/json'{key} -d {shlex.quote(body)}",
        f"clients: base URL {url}/v1 for OpenAI's, {url} for Anthropic's; model {model}",
    )


def python() -> str:
    """The interpreter that runs this, as it is called from the current folder."""
    path, here = Path(sys.executable), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def wait_text(times: StartTimes, model: str) -> str:
    """How long a start takes, as far as it is known."""
    last_s = times.last_s(model)
    if last_s is None:
        return "for the first time here: its programs are compiled, and kept for the next start"
    return f"which took {last_s:.0f} s last time"


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
