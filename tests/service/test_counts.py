"""Token counts: the prompt and nothing else, with places of their own."""

import threading

import attrs
import pytest
import trio

from ninfer.conversation import (
    GenerationRequest,
    InvalidRequest,
    Overloaded,
    QueueTimeout,
    Text,
    Tool,
    ToolCall,
    Turn,
)
from ninfer.prompt import Cancellation, PreparedPrompt
from ninfer.service import ServiceSettings
from tests.fakes.device import FakeDevice
from tests.fakes.service import ByteBuilder, choose_letter, open_service

LONG = "x" * 20_000  # prepared in a thread


def request(words: str) -> GenerationRequest:
    return GenerationRequest(turns=(Turn(role="user", parts=(Text(words),)),))


async def test_a_count_is_the_length_of_the_prompt() -> None:
    async with open_service(FakeDevice(choose=choose_letter)) as house:
        assert await house.service.count_tokens(request("Hello")) == 5
        assert await house.service.count_tokens(request(LONG)) == len(LONG)  # beyond the context: it is only counted
        assert house.service.count_capacity.taken == 0
        assert house.service.capacity.taken == 0


@attrs.define(eq=False)
class Where(ByteBuilder):
    """Remembers the thread of its latest build."""

    thread: int = 0

    def build(
        self, request: GenerationRequest, *, most_tokens: int | None = None, cancellation: Cancellation | None = None
    ) -> PreparedPrompt:
        self.thread = threading.get_ident()
        return super().build(request, most_tokens=most_tokens, cancellation=cancellation)


CALL = ToolCall(id="c", name="f", arguments={})


@pytest.mark.contract("EXEC-017")
@pytest.mark.parametrize(
    ("asked", "in_place"),
    [
        (request("Hello"), True),
        (request(LONG), False),
        (attrs.evolve(request("Hello"), tools=(Tool(name="f", declaration={}),)), False),
        (attrs.evolve(request("Hello"), template_kwargs={"k": list(range(100_000))}), False),
        (GenerationRequest(turns=request("a").turns * 17), False),
        (GenerationRequest(turns=(Turn(role="user", parts=(Text("a"),) * 17),)), False),
        (GenerationRequest(turns=(*request("a").turns, Turn(role="assistant", parts=(CALL,)))), False),
        (GenerationRequest(turns=(Turn(role="tool", call_id="c" * 100_000),)), False),
    ],
)
async def test_only_small_prompts_are_made_in_place(asked: GenerationRequest, in_place: bool) -> None:
    builder = Where()
    async with open_service(FakeDevice(choose=choose_letter), builder=builder) as house:
        await house.service.count_tokens(asked)
        assert (builder.thread == threading.get_ident()) == in_place


async def test_a_prompt_that_cannot_be_made() -> None:
    builder = ByteBuilder(error=InvalidRequest("no"))
    async with open_service(FakeDevice(choose=choose_letter), builder=builder) as house:
        with pytest.raises(InvalidRequest):
            await house.service.count_tokens(request("Hello"))
        assert house.service.count_capacity.taken == 0


@pytest.mark.contract("EXEC-008")
async def test_counts_have_places_of_their_own() -> None:
    gate = threading.Event()
    settings = ServiceSettings(max_pending_requests=2)
    async with open_service(
        FakeDevice(choose=choose_letter), builder=ByteBuilder(gate=gate), settings=settings
    ) as house:
        service = house.service
        assert service.count_capacity.places == service.capacity.places == 3
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(service.count_tokens, request(LONG))
                await trio.testing.wait_all_tasks_blocked()
                assert (service.count_capacity.taken, service.capacity.taken) == (3, 0)
                with pytest.raises(Overloaded, match="all 3 places"):
                    await service.count_tokens(request("Hello"))
                gate.set()
        finally:
            gate.set()
        async with service.generate(request("Hello")) as events:
            assert [event async for event in events]


@pytest.mark.contract("EXEC-009")
async def test_a_count_that_takes_too_long() -> None:
    gate = threading.Event()
    settings = ServiceSettings(pending_timeout_s=0.05)
    async with open_service(
        FakeDevice(choose=choose_letter), builder=ByteBuilder(gate=gate), settings=settings
    ) as house:
        try:
            with pytest.raises(QueueTimeout):
                await house.service.count_tokens(request(LONG))
        finally:
            gate.set()
