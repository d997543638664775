"""The engine's async side: submit, cancel, close. Nothing here waits for the device, and nothing here runs on it.

The worker's thread posts the events of a step in one callback (`TrioToken.run_sync_soon`), which puts them into the
channels of their requests. A channel holds at most what its request's own output limit allows, so it is unbounded on
paper and a slow reader never stops the device.

Invariant: every request that was handed over gets `Finished`, `Failed`, or is cancelled; the end of the thread, for
whatever reason, is posted like any event, so no request can fall between the check for it and the hand-over.
"""

import itertools
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from ninfer.engine.cache import pages_for
from ninfer.engine.deep_stack import start_deep
from ninfer.engine.device import Device
from ninfer.engine.scheduler import Note
from ninfer.engine.types import (
    PAGE_TOKENS,
    CapacityExceeded,
    EngineError,
    EngineEvent,
    EngineFigures,
    EngineLimits,
    EngineStopped,
    Failed,
    Finished,
    Plan,
    Prompt,
)
from ninfer.engine.worker import Direct, Worker, run_as_asked

logger = logging.getLogger(__name__)


class RunningEngine:
    """An engine whose device thread runs; implements `types.Engine`. Made by `open_engine` alone."""

    def __init__(
        self, device: Device, limits: EngineLimits, *, clock: Callable[[], float], direct: Direct = run_as_asked
    ) -> None:
        self._limits = limits
        self._trio = trio.lowlevel.current_trio_token()
        self._worker = Worker(device=device, limits=limits, publish=self._post, clock=clock, direct=direct)
        self._tickets = itertools.count()
        self._open: dict[int, trio.MemorySendChannel[EngineEvent]] = {}  # ticket -> where its events go
        self._ready = trio.Event()
        self._stopped = trio.Event()
        self._failure: EngineError | None = None
        self._start_error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ninfer-device", daemon=True)

    @property
    def limits(self) -> EngineLimits:
        """What is fixed at start; read them when the engine is ready."""
        return self._limits

    @property
    def failure(self) -> EngineError | None:
        """Why nothing can be generated any more, or None."""
        return self._failure

    def figures(self) -> EngineFigures:
        """The gauges and counters after the latest step."""
        return self._worker.figures

    async def wait_stopped(self) -> EngineError:
        """Wait until nothing can be generated any more; why. A `DeviceLost` asks for the end of the process."""
        await self._stopped.wait()
        return self._failure or EngineStopped("the engine has stopped")

    @asynccontextmanager
    async def submit(self, prompt: Prompt, plan: Plan) -> AsyncIterator[trio.MemoryReceiveChannel[EngineEvent]]:
        """Hand a request to the device thread; leaving the block cancels it and frees what it owns.

        Raises:
            EngineStopped: the engine accepts no work.
            CapacityExceeded: the prompt can never fit.
        """
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args) from self._failure
        self._check_size(len(prompt.tokens))
        ticket = next(self._tickets)
        send, receive = trio.open_memory_channel[EngineEvent](math.inf)
        self._open[ticket] = send
        self._worker.submit(ticket, prompt, plan)
        try:
            yield receive
        finally:
            # Synchronous, so that no cancellation can keep a request alive. Harmless after its end.
            if self._open.pop(ticket, None) is not None:
                self._worker.cancel(ticket)
            send.close()
            receive.close()

    def _check_size(self, prompt_tokens: int) -> None:
        total_pages = self._worker.figures.total_pages
        if prompt_tokens > self._limits.max_context_tokens or pages_for(prompt_tokens) > total_pages:
            raise CapacityExceeded(
                f"a prompt of {prompt_tokens} tokens can never fit: the context holds "
                f"{self._limits.max_context_tokens} tokens, the KV memory {total_pages} pages"
            )

    async def open(self) -> None:
        """Start the thread and wait until the device is ready. Raises what its preparation raised."""
        start_deep(self._thread)
        await self._ready.wait()
        if self._start_error is not None:
            raise self._start_error
        self._limits = attrs.evolve(self._limits, kv_capacity_tokens=self.figures().total_pages * PAGE_TOKENS)

    def abandon(self) -> None:
        """Let the thread end by itself, and wait for nothing."""
        self._worker.close()

    async def close(self) -> None:
        """End the thread; requests that are still there fail. Not cancelled by anything: it takes one step."""
        self._worker.close()
        with trio.CancelScope(shield=True):
            await self._stopped.wait()
            await trio.to_thread.run_sync(self._thread.join)

    # On the device thread

    def _run(self) -> None:
        failure: EngineError = EngineStopped("the engine was closed")
        try:
            self._worker.prepare()
        except BaseException as error:  # whatever it is, Trio waits for an answer
            logger.error("the device could not be prepared: %s", error)
            self._call(self._not_started, error)
            return
        self._call(self._ready.set)
        try:
            self._worker.run()
        except EngineStopped as error:
            failure = error
        except BaseException as error:
            failure = EngineStopped(f"the device thread was ended by {error!r}")
        self._call(self._end, failure)

    def _post(self, notes: Sequence[Note]) -> None:
        self._call(self._deliver, notes)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self._trio.run_sync_soon(function, *arguments)
        except trio.RunFinishedError:
            # Trio is gone, and with it everybody who could listen.
            self._worker.close()

    # In Trio's thread again

    def _deliver(self, notes: Sequence[Note]) -> None:
        for ticket, event in notes:
            send = self._open.get(ticket)
            if send is None:
                continue  # cancelled meanwhile
            try:
                send.send_nowait(event)
            except trio.BrokenResourceError:
                # The reader closed its end inside the block: it wants nothing more, which is a cancel.
                del self._open[ticket]
                self._worker.cancel(ticket)
                continue
            if isinstance(event, Finished | Failed):
                del self._open[ticket]
                send.close()

    def _not_started(self, error: BaseException) -> None:
        self._start_error = error
        self._end(EngineStopped(f"the device could not be prepared: {error}"))
        self._ready.set()

    def _end(self, failure: EngineError) -> None:
        self._failure = failure
        self._deliver([(ticket, Failed(failure)) for ticket in self._open])
        self._stopped.set()


@asynccontextmanager
async def open_engine(
    device: Device,
    limits: EngineLimits,
    *,
    clock: Callable[[], float] = time.monotonic,
    direct: Direct = run_as_asked,
) -> AsyncIterator[RunningEngine]:
    """Prepare `device` on a thread of its own, run the engine on it, and end both with the block.

    Entering waits for `device.prepare()`. Cancelled meanwhile, it leaves the thread to finish its compilation and
    end by itself: nothing can interrupt a compiler.
    """
    engine = RunningEngine(device, limits, clock=clock, direct=direct)
    try:
        await engine.open()
    except BaseException:
        engine.abandon()
        raise
    try:
        yield engine
    finally:
        await engine.close()
