"""The request path over the real engine and a device without a model."""

import threading
from typing import Any

import pytest
import trio
import trio.testing

from ninfer.conversation import (
    ContextExceeded,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    InternalError,
    InvalidRequest,
    NotFound,
    Overloaded,
    PromptProgress,
    QueueTimeout,
    RequestError,
    SamplingFields,
    Started,
    Text,
    TextDelta,
    Turn,
)
from ninfer.conversation.errors import EngineUnavailable
from ninfer.engine.types import CapacityExceeded, DeviceLost, EngineError, EngineStopped, UnitFailed
from ninfer.service import ProtocolFlags, SamplerRules, ServiceSettings
from ninfer.service.failures import as_request_error
from ninfer.testing import CARD, until
from tests.fakes.device import FakeDevice, InjectedFault
from tests.fakes.service import (
    THINK_CLOSE,
    ByteBuilder,
    OpenService,
    choose_letter,
    open_service,
    saying,
)


def request(
    text: str = "Hello", *, limit: int | None = 20, stop: tuple[str, ...] = (), **sampling: Any
) -> GenerationRequest:
    return GenerationRequest(
        turns=(Turn(role="user", parts=(Text(text),)),),
        max_output_tokens=limit,
        stop=stop,
        sampling=SamplingFields(**sampling),
    )


async def run(house: OpenService, asked: GenerationRequest) -> list[Event]:
    with trio.fail_after(10):
        async with house.service.generate(asked) as events:
            return [event async for event in events]


def text_of(events: list[Event], channel: str = "answer") -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta) and event.channel == channel)


def end_of(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


async def test_events_of_a_reply() -> None:
    async with open_service(FakeDevice(choose=saying("Good day", after=5))) as house:
        events = await run(house, request())
        assert events[0] == Started(prompt_tokens=5, cached_tokens=0)
        assert isinstance(events[1], PromptProgress)
        assert (events[1].total_tokens, events[1].processed_tokens) == (5, 5)
        assert text_of(events) == "Good day"
        end = end_of(events)
        assert end.reason is FinishReason.STOP_TOKEN
        assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (5, 9)
        assert (end.usage.cached_tokens, end.usage.reasoning_tokens) == (0, 0)
        assert end.timings.prompt_s >= 0
        assert end.timings.generation_s >= 0
        assert house.service.capacity.taken == 0


async def test_progress_of_a_long_prompt() -> None:
    async with open_service() as house:
        events = await run(house, request("x" * 300, limit=1))
        assert [event.processed_tokens for event in events if isinstance(event, PromptProgress)] == [128, 256, 300]


@pytest.mark.contract("CHAT-010")
async def test_a_limit_of_zero_prefills_and_generates_nothing() -> None:
    async with open_service() as house:
        events = await run(house, request("x" * 200, limit=0))
        assert not text_of(events)
        assert end_of(events).reason is FinishReason.OUTPUT_LIMIT
        assert end_of(events).usage.completion_tokens == 0
        assert [event.processed_tokens for event in events if isinstance(event, PromptProgress)][-1] == 200


@pytest.mark.contract("CHAT-009")
async def test_limits() -> None:
    settings = ServiceSettings(default_max_tokens=7)
    async with open_service(context_tokens=64, settings=settings) as house:
        for asked, tokens, reason in (
            (3, 3, FinishReason.OUTPUT_LIMIT),
            (None, 7, FinishReason.OUTPUT_LIMIT),
            (59, 59, FinishReason.OUTPUT_LIMIT),
            (60, 59, FinishReason.CONTEXT_LIMIT),
            (10**12, 59, FinishReason.CONTEXT_LIMIT),
        ):
            end = end_of(await run(house, request(limit=asked)))
            assert (end.usage.completion_tokens, end.reason) == (tokens, reason), asked


@pytest.mark.contract("ERR-012")
async def test_the_context_ceiling() -> None:
    async with open_service(context_tokens=64) as house:
        assert end_of(await run(house, request("x" * 63))).usage.completion_tokens == 1
        for text, limit in (("x" * 64, 1), ("x" * 65, 0), ("x" * 5000, None)):
            with pytest.raises(ContextExceeded, match=rf"has {len(text)} tokens.* 64 tokens"):
                await run(house, request(text, limit=limit))
        assert end_of(await run(house, request("x" * 64, limit=0))).usage.prompt_tokens == 64
        assert house.service.capacity.taken == 0


@pytest.mark.contract("CHAT-015")
@pytest.mark.parametrize(("said", "channel"), [("one two three", "answer"), ("one two three", "reasoning")])
async def test_a_stop_string_ends_the_engines_work(said: str, channel: str) -> None:
    builder = ByteBuilder(opens_in_reasoning=channel == "reasoning", thinking=True)
    gate = threading.Semaphore(10)  # the device does what ten tokens need, and no more
    async with open_service(FakeDevice(choose=saying(said * 50, after=5), gate=gate), builder=builder) as house:
        events = await run(house, request(limit=500, stop=("zzz", "o th")))
        assert text_of(events, channel) == "one tw"
        end = end_of(events)
        assert (end.reason, end.stop) == (FinishReason.STOP_STRING, "o th")
        assert end.usage.completion_tokens == len("one two th")
        gate.release(2)  # the round in flight and the one behind it
        await until(lambda: house.engine.figures().resident_requests == 0)


@pytest.mark.contract("CHAT-037", "CHAT-040")
async def test_reasoning_is_a_channel_of_its_own() -> None:
    reply = (*b"hm", THINK_CLOSE, *b"\n\nyes")
    builder = ByteBuilder(opens_in_reasoning=True, thinking=True)
    async with open_service(FakeDevice(choose=saying(reply, after=5)), builder=builder) as house:
        events = await run(house, request())
        assert (text_of(events, "reasoning"), text_of(events)) == ("hm", "yes")
        assert end_of(events).usage.reasoning_tokens == 3
        assert end_of(events).usage.completion_tokens == len(reply) + 1


async def test_the_sampler_reaches_the_device() -> None:
    seen: list[Any] = []

    def choose(state: int, row: Any) -> int:
        seen.append(row.sampling)
        return 97

    rules = SamplerRules(architecture="qwen3_5", flags=SamplingFields(top_p=0.5))
    async with open_service(FakeDevice(choose=choose), sampler=rules) as house:
        await run(house, request(limit=1, temperature=0.25, seed=-9))
        assert (seen[0].temperature, seen[0].top_p, seen[0].seed) == (0.25, 0.5, -9)
        assert seen[0].presence_penalty == 1.5  # the builder says that the reply does not think


def test_flags_and_model_are_passed_on() -> None:
    async def look() -> None:
        async with open_service(settings=ServiceSettings(flags=ProtocolFlags(usage_chunk_choice=True))) as house:
            assert house.service.flags.usage_chunk_choice
            assert house.service.model == CARD
            house.service.check_model(CARD.id)
            with pytest.raises(NotFound) as caught:
                house.service.check_model("é" * 900)
            assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
            assert caught.value.message.isascii()

    trio.run(look)


@pytest.mark.contract("CHAT-002")
async def test_the_model_must_be_the_public_id() -> None:
    async with open_service() as house:
        for wrong in ("", CARD.id.upper(), f"{CARD.id} ", "gpt-4"):
            with pytest.raises(NotFound):
                house.service.check_model(wrong)


# Capacity and deadlines


@pytest.mark.contract("EXEC-006", "EXEC-007")
async def test_capacity_counts_waiting_and_running_requests() -> None:
    device = FakeDevice(gate=threading.Semaphore(0), choose=choose_letter)
    async with open_service(device, settings=ServiceSettings(max_pending_requests=2)) as house:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(run, house, request())
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(Overloaded, match="all 3 places"):
                await run(house, request())
            nursery.cancel_scope.cancel()
        assert house.service.capacity.taken == 0
        assert device.gate is not None
        device.gate.release(1000)
        await run(house, request())


@pytest.mark.contract("EXEC-006")
async def test_a_request_in_preparation_counts() -> None:
    builder = ByteBuilder(gate=threading.Event())
    assert builder.gate is not None
    async with open_service(builder=builder, settings=ServiceSettings(max_pending_requests=0)) as house:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, house, request("x" * 9000))
            await until(lambda: builder.builds == 1)
            with pytest.raises(Overloaded):
                await run(house, request())
            nursery.cancel_scope.cancel()
        builder.gate.set()
        await run(house, request())


@pytest.mark.contract("EXEC-009", "EXEC-010")
async def test_a_request_that_is_not_admitted_in_time() -> None:
    device = FakeDevice(gate=threading.Semaphore(0), choose=choose_letter)
    settings = ServiceSettings(pending_timeout_s=0.2)
    async with open_service(device, settings=settings) as house, house.service.generate(request()) as running:
        assert isinstance(await anext(running), Started)
        begin_s = trio.current_time()
        with pytest.raises(QueueTimeout, match="within 200 ms"):
            await run(house, request())
        assert 0.19 < trio.current_time() - begin_s < 2
        assert device.gate is not None
        device.gate.release(1000)
        rest = [event async for event in running]  # an admitted request has no deadline (EXEC-011)
        assert isinstance(rest[-1], Finished)


@pytest.mark.contract("EXEC-009")
async def test_the_deadline_covers_the_preparation() -> None:
    builder = ByteBuilder(gate=threading.Event())
    assert builder.gate is not None
    async with open_service(builder=builder, settings=ServiceSettings(pending_timeout_s=0.1)) as house:
        with pytest.raises(QueueTimeout):
            await run(house, request("x" * 9000))
        assert house.service.capacity.taken == 0
        builder.gate.set()


# Failures


async def test_a_prompt_that_is_refused() -> None:
    async with open_service(builder=ByteBuilder(error=InvalidRequest("no", code="invalid_prompt"))) as house:
        for text in ("short", "x" * 9000):
            with pytest.raises(InvalidRequest, match="no"):
                await run(house, request(text))


@pytest.mark.contract("ERR-006", "ERR-035")
@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        (MemoryError("RESOURCE_EXHAUSTED: out of memory"), EngineUnavailable, "engine_out_of_memory"),
        (AssertionError("a check"), InternalError, "internal_error"),
    ],
)
async def test_a_unit_that_fails(fault: Exception, kind: type[RequestError], code: str) -> None:
    device = FakeDevice(choose=choose_letter, fault=lambda unit, _: InjectedFault(on_read=fault if unit == 3 else None))
    async with open_service(device) as house:
        with pytest.raises(kind) as caught:
            await run(house, request())
        assert caught.value.code == code
        assert "check" not in caught.value.message or code == "internal_error"
        assert house.service.accepts_work
        assert end_of(await run(house, request())).usage.completion_tokens == 20


@pytest.mark.contract("HTTP-007", "LIFE-025")
async def test_an_engine_that_has_stopped() -> None:
    device = FakeDevice(
        choose=choose_letter, fault=lambda unit, _: InjectedFault(on_read=RuntimeError("boom") if unit == 2 else None)
    )
    async with open_service(device) as house:
        assert house.service.accepts_work
        with pytest.raises(EngineUnavailable):
            await run(house, request())
        assert not house.service.accepts_work
        with pytest.raises(EngineUnavailable) as caught:
            await run(house, request())
        assert caught.value.code == "service_unavailable"
        assert house.service.capacity.taken == 0


@pytest.mark.contract("HTTP-008")
async def test_a_full_queue_is_no_failure() -> None:
    device = FakeDevice(gate=threading.Semaphore(0), choose=choose_letter)
    async with open_service(device, settings=ServiceSettings(max_pending_requests=0)) as house:
        async with house.service.generate(request()):
            with pytest.raises(Overloaded):
                await run(house, request())
            assert house.service.accepts_work
        assert device.gate is not None
        device.gate.release(1000)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CapacityExceeded("x"), ContextExceeded),
        (EngineStopped("x"), EngineUnavailable),
        (DeviceLost("x"), EngineUnavailable),
        (UnitFailed("x"), InternalError),
        (EngineError("x"), InternalError),
    ],
)
def test_engine_errors(error: EngineError, kind: type[RequestError]) -> None:
    assert type(as_request_error(error)) is kind
