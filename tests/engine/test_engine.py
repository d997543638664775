"""The engine's async side with a real thread. Nothing here depends on time: tests wait for events alone."""

import contextlib
import logging
import threading
from collections.abc import Callable

import pytest
import trio
import trio.testing

from ninfer.engine.deep_stack import STACK_BYTES
from ninfer.engine.engine import RunningEngine, open_engine
from ninfer.engine.scheduler import UNPACED, Pacing
from ninfer.engine.types import (
    Admitted,
    CapacityExceeded,
    DeviceLost,
    EngineEvent,
    EngineStopped,
    Failed,
    Finished,
    Plan,
    Prompt,
    PromptProgress,
    StopReason,
    Tokens,
    UnitFailed,
)
from tests.fakes.device import FakeDevice, InjectedFault, Kind
from tests.fakes.engine import limits, plan, prompt, undisturbed

HANG_S = 30
"""No test waits for this: what has not happened by then never will."""


class SteppedDevice(FakeDevice):
    """A fake device that reads one unit for each permit."""

    def __init__(self, **fields: object) -> None:
        super().__init__(gate=threading.Semaphore(0), **fields)  # type: ignore[arg-type]

    def let(self, units: int) -> None:
        assert self.gate is not None
        self.gate.release(units)

    def let_all(self) -> None:
        self.let(100_000)


async def everything(engine: RunningEngine, asked: Prompt, how: Plan) -> list[EngineEvent]:
    """All events of a request; it fails instead of hanging when they do not end."""
    events: list[EngineEvent] = []
    with trio.fail_after(HANG_S):
        async with engine.submit(asked, how) as channel:
            async for event in channel:
                events.append(event)
    return events


def tokens(events: list[EngineEvent]) -> tuple[int, ...]:
    return tuple(token for event in events if isinstance(event, Tokens) for token in event.tokens)


async def all_free(engine: RunningEngine) -> None:
    """Wait until the engine owns nothing for anybody. A request that runs behind the cancel makes that certain."""
    with trio.fail_after(HANG_S):
        while True:
            await everything(engine, prompt(1, 99), plan(0))
            now = engine.figures()
            if (now.free_pages, now.free_slots) == (now.total_pages, now.total_slots) and not now.waiting_requests:
                return


async def test_a_request_from_end_to_end() -> None:
    device = FakeDevice()
    async with open_engine(device, limits()) as engine:
        events = await everything(engine, prompt(200), plan(20))
        assert engine.failure is None
        assert engine.limits == limits()
        assert engine.figures().compilations == 2
        assert (engine.figures().free_pages, engine.figures().free_slots) == (64, 1)
    assert [type(event) for event in events] == [Admitted, PromptProgress, PromptProgress, *[Tokens] * 20, Finished]
    assert tokens(events) == undisturbed(prompt(200), plan(20))
    times = [event.at_s for event in events if isinstance(event, Admitted | PromptProgress | Tokens)]
    assert times == sorted(times)


async def test_the_device_is_prepared_and_used_on_a_thread_of_its_own_that_ends_with_the_block() -> None:
    device = FakeDevice()
    before = threading.stack_size()
    async with open_engine(device, limits()):
        assert threading.stack_size() == before
        thread = device.prepared_by
        assert thread is not None
        assert thread is not threading.current_thread()
        assert thread.is_alive()
    assert not thread.is_alive()
    assert STACK_BYTES == 64 << 20


async def test_a_device_that_cannot_be_prepared_fails_the_start_with_its_own_error() -> None:
    error = ValueError("no memory for the weights")
    with pytest.raises(ValueError, match="no memory for the weights") as caught:
        async with open_engine(FakeDevice(prepare_error=error), limits()):
            pytest.fail("opened")
    assert caught.value is error


def test_a_start_that_is_cancelled_does_not_wait_for_the_compiler() -> None:
    compiling, finish = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    class Compiling(FakeDevice):
        def prepare(self) -> None:
            threads.append(threading.current_thread())
            compiling.set()
            finish.wait(HANG_S)

    async def main() -> None:
        async def start() -> None:
            async with open_engine(Compiling(), limits()):
                pytest.fail("opened")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            await trio.to_thread.run_sync(compiling.wait)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert threads[0].is_alive()
    finish.set()  # Trio is gone by now: what the thread has to say reaches nobody, and it ends
    threads[0].join(HANG_S)
    assert not threads[0].is_alive()


@pytest.mark.contract("EXEC-016", "EXEC-017")
async def test_eight_requests_share_the_memory_and_a_reader_that_does_not_read_stops_nobody() -> None:
    device = FakeDevice(total_pages=12, total_slots=4)
    said: dict[int, tuple[int, ...]] = {}
    async with open_engine(device, limits(lanes=4, pages=12)) as engine:
        async with engine.submit(prompt(30, 50), plan(200)) as unread, trio.open_nursery() as nursery:

            async def ask(salt: int) -> None:
                said[salt] = tokens(await everything(engine, prompt(40 * salt + 1, salt), plan(90, seed=salt)))

            for salt in range(8):
                nursery.start_soon(ask, salt)
        with pytest.raises(trio.ClosedResourceError):
            unread.receive_nowait()
        await all_free(engine)
    assert said == {salt: undisturbed(prompt(40 * salt + 1, salt), plan(90, seed=salt)) for salt in range(8)}


def held_back(asked: Prompt, how: Plan) -> tuple[Plan, Pacing]:
    """Requests of 600 tokens keep their lane for ever."""
    return how, Pacing(first_s=1e6) if len(asked.tokens) == 600 else UNPACED


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until `condition` holds."""
    with trio.fail_after(HANG_S):
        while not condition():
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("state", "event"), [("queued", None), ("prefilling", PromptProgress), ("decoding", Tokens), ("finished", Finished)]
)
async def test_clients_that_vanish_give_everything_back(state: str, event: type[EngineEvent] | None) -> None:
    """Thirty in each state, by cancelling the task that waits."""
    vanished = 0
    async with open_engine(FakeDevice(), limits(chunk_tokens=64), direct=held_back) as engine:

        async def ask(salt: int, seen: trio.Event) -> None:
            async with engine.submit(prompt(500, salt), plan(2 if state == "finished" else 3000)) as channel:
                async for heard in channel:
                    if event is not None and isinstance(heard, event):
                        seen.set()
                await trio.sleep_forever()

        for salt in range(30):
            async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as stack:
                seen = trio.Event()
                if event is None:
                    await stack.enter_async_context(engine.submit(prompt(600), plan(1)))
                nursery.start_soon(ask, salt, seen)
                if event is None:
                    await until(lambda: engine.figures().waiting_requests == 1)
                else:
                    await seen.wait()
                vanished += 1
                nursery.cancel_scope.cancel()
        assert vanished == 30
        assert tokens(await everything(engine, prompt(20), plan(3))) == undisturbed(prompt(20), plan(3))
        await all_free(engine)
        assert engine.figures().resident_requests == 0


async def test_a_request_that_is_held_back_keeps_nobody_else_waiting() -> None:
    async with open_engine(FakeDevice(total_slots=2), limits(lanes=2), direct=held_back) as engine:
        said: dict[int, tuple[int, ...]] = {}

        async def ask(salt: int) -> None:
            said[salt] = tokens(await everything(engine, prompt(20, salt), plan(5)))

        async with engine.submit(prompt(600), plan(5)), trio.open_nursery() as nursery:
            for salt in range(6):  # all of them through the one lane that is left
                nursery.start_soon(ask, salt)
        assert said == {salt: undisturbed(prompt(20, salt), plan(5)) for salt in range(6)}


async def test_leaving_the_block_twice_or_after_the_end_is_harmless() -> None:
    async with open_engine(FakeDevice(), limits()) as engine:
        async with engine.submit(prompt(10), plan(2)) as channel:
            events = [event async for event in channel]
            assert events[-1] == Finished(StopReason.OUTPUT_LIMIT)
            await channel.aclose()
        async with engine.submit(prompt(10, 1), plan(4000)) as channel:
            await channel.receive()
            await channel.aclose()  # wants nothing more, and stays in the block
            assert tokens(await everything(engine, prompt(10, 2), plan(2))) == undisturbed(prompt(10, 2), plan(2))
        await all_free(engine)


async def test_requests_in_flight_fail_when_the_engine_is_closed() -> None:
    device = SteppedDevice(total_slots=2)
    heard: dict[str, list[EngineEvent]] = {}
    async with trio.open_nursery() as nursery, open_engine(device, limits(lanes=2, chunk_tokens=64)) as engine:
        running = trio.Event()

        async def ask(name: str, asked: Prompt, how: Plan) -> None:
            heard[name] = []
            with trio.fail_after(HANG_S):
                async with engine.submit(asked, how) as channel:
                    async for event in channel:
                        heard[name].append(event)
                        if name == "decoding" and isinstance(event, Tokens):
                            running.set()

        nursery.start_soon(ask, "decoding", prompt(10), plan(4000))
        device.let(5)
        await running.wait()
        nursery.start_soon(ask, "prefilling", prompt(4000, 1), plan(9))
        nursery.start_soon(ask, "queued", prompt(10, 2), plan(9))
        await trio.testing.wait_all_tasks_blocked()
        device.let_all()
    assert set(heard) == {"decoding", "prefilling", "queued"}
    for events in heard.values():
        assert isinstance(failed := events[-1], Failed)
        assert isinstance(failed.error, EngineStopped)
        assert str(failed.error) == "the engine was closed"
    assert isinstance(engine.failure, EngineStopped)
    with pytest.raises(EngineStopped, match="closed"):
        async with engine.submit(prompt(1), plan(1)):
            pytest.fail("accepted")


@pytest.mark.contract("LIFE-024", "LIFE-025", "LIFE-026")
@pytest.mark.parametrize(
    ("error", "kind"),
    [(RuntimeError("boom"), EngineStopped), (DeviceLost("gone"), DeviceLost)],
)
async def test_a_crash_fails_every_request_now_and_later(
    error: Exception, kind: type[EngineStopped], caplog: pytest.LogCaptureFixture
) -> None:
    def fault(unit: int, of: Kind) -> InjectedFault:
        return InjectedFault(on_read=error) if unit == 7 else InjectedFault()

    caplog.set_level(logging.ERROR)
    heard: list[list[EngineEvent]] = []
    async with open_engine(FakeDevice(fault=fault), limits()) as engine:
        async with trio.open_nursery() as nursery:

            async def ask(salt: int) -> None:
                heard.append(await everything(engine, prompt(20, salt), plan(50)))

            for salt in range(3):
                nursery.start_soon(ask, salt)
        stopped = await engine.wait_stopped()
        assert type(stopped) is kind
        assert engine.failure is stopped
        with pytest.raises(kind):
            async with engine.submit(prompt(1), plan(1)):
                pytest.fail("accepted")
    assert len(heard) == 3
    for events in heard:
        assert isinstance(failed := events[-1], Failed)
        assert type(failed.error) is kind
    assert caplog.records[0].message == f"worker crash: {error}"


async def test_nine_failures_in_a_row_stop_it_for_those_who_wait_too() -> None:
    device = FakeDevice(fault=lambda unit, kind: InjectedFault(on_read=AssertionError("no")))
    async with open_engine(device, limits()) as engine:
        errors: list[type[Exception]] = []
        for salt in range(9):
            failed = (await everything(engine, prompt(10, salt), plan(5)))[-1]
            assert isinstance(failed, Failed)
            errors.append(type(failed.error))
        assert errors == [UnitFailed] * 8 + [EngineStopped]
        assert engine.figures().recoveries == 8


@pytest.mark.contract("KV-014")
async def test_what_can_never_fit_is_refused_at_once() -> None:
    async with open_engine(FakeDevice(total_pages=4), limits(pages=4, context_tokens=300)) as engine:
        for length in (257, 301):
            with pytest.raises(CapacityExceeded, match=f"a prompt of {length} tokens can never fit"):
                async with engine.submit(prompt(length), plan(1)):
                    pytest.fail("accepted")
        assert engine.limits.request_tokens == 257
        heard = await everything(engine, prompt(250), plan(40))
        assert heard[-1] == Finished(StopReason.CONTEXT_LIMIT)
        assert sum(isinstance(event, Tokens) for event in heard) == 7


async def test_the_device_has_the_last_word_on_the_capacity() -> None:
    async with open_engine(FakeDevice(total_pages=4), limits(pages=6, context_tokens=1000)) as engine:
        assert (engine.limits.kv_capacity_tokens, engine.limits.request_tokens) == (256, 257)
