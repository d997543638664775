"""Where prompts are prepared, and what becomes of the work when its client has left."""

import contextlib
import threading

import attrs
import pytest
import trio
import trio.lowlevel
import trio.testing

from ninfer.conversation import ContextExceeded, GenerationRequest, Text, Tool, ToolCall, Turn
from ninfer.prompt import Abandoned, Cancellation, PreparedPrompt
from ninfer.service import ServiceSettings
from ninfer.service.preparing import ITEM_CHARS, LARGE_CHARS, LIGHT_CHARS, LIGHT_TURNS, Preparation, is_large
from tests.fakes.device import FakeDevice
from tests.fakes.service import ByteBuilder, choose_letter, open_service


def request(*texts: str) -> GenerationRequest:
    return GenerationRequest(turns=tuple(Turn(role="user", parts=(Text(text),)) for text in texts))


MANY = LARGE_CHARS // ITEM_CHARS
CALLS = tuple(ToolCall(id="c", name="f", arguments={}) for _ in range(MANY))
NESTED: list[object] = []
for _ in range(100_000):  # deeper than Python would follow
    NESTED = [NESTED]


def test_the_numbers_are_those_of_the_documentation() -> None:
    assert (LIGHT_TURNS, LIGHT_CHARS, LARGE_CHARS, ITEM_CHARS) == (16, 8_000, 256_000, 64)
    assert ServiceSettings().prompt_threads == 2


@pytest.mark.parametrize(
    ("asked", "large"),
    [
        (request("x" * (LARGE_CHARS - 3 * ITEM_CHARS - 10)), False),
        (request("x" * LARGE_CHARS), True),
        (request(*["x" * 1000] * 300), True),
        (request(*["x"] * 1000), False),
        (request(*["x"] * MANY), True),
        (GenerationRequest(turns=(Turn(role="assistant", parts=CALLS[:100]),)), False),
        (GenerationRequest(turns=(Turn(role="assistant", parts=CALLS),)), True),
        (attrs.evolve(request("x"), tools=(Tool(name="f", declaration={"a": {"b": ["x" * 1000]}}),)), False),
        (attrs.evolve(request("x"), tools=(Tool(name="f", declaration={"a": {"b": ["x" * LARGE_CHARS]}}),)), True),
        (attrs.evolve(request("x"), tools=(Tool(name="f", declaration={"x" * LARGE_CHARS: 1}),)), True),
        (attrs.evolve(request("x"), template_kwargs={"k": [0] * MANY}), True),
        (attrs.evolve(request("x"), template_kwargs={"k": NESTED}), True),
        (attrs.evolve(request("x"), template_kwargs={"k": {"a": 1, "b": [2, "c"]}}), False),
    ],
)
def test_what_is_large(asked: GenerationRequest, large: bool) -> None:
    assert is_large(asked) == large


SMALL, LARGE = "x" * 20_000, "x" * LARGE_CHARS


async def test_large_prompts_share_one_thread_and_leave_the_others_free() -> None:
    """Four clients with large prompts held both threads for half a minute, and requests with one tool waited."""
    gate = threading.Event()

    @attrs.define(eq=False)
    class Slow(ByteBuilder):
        """Holds large prompts at the gate."""

        large: int = 0

        def build(
            self,
            request: GenerationRequest,
            *,
            most_tokens: int | None = None,
            cancellation: Cancellation | None = None,
        ) -> PreparedPrompt:
            if is_large(request):
                self.large += 1
                gate.wait(30)
            return super().build(request, most_tokens=most_tokens, cancellation=cancellation)

    builder = Slow()
    device = FakeDevice(choose=choose_letter)
    async with open_service(device, builder=builder, settings=ServiceSettings(max_pending_requests=15)) as house:
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(house.service.count_tokens, request(LARGE))
                await trio.testing.wait_all_tasks_blocked()
                for _ in range(3):
                    assert await house.service.count_tokens(request(SMALL)) == len(SMALL)
                assert builder.large == 1
                gate.set()
        finally:
            gate.set()
        assert builder.large == 4


@attrs.define(eq=False)
class Patient:
    """A preparer that works until it is told to stop."""

    in_place: bool = False
    begun: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    stopped: list[str] = attrs.field(factory=list)

    def build(
        self, request: GenerationRequest, *, most_tokens: int | None = None, cancellation: Cancellation | None = None
    ) -> PreparedPrompt:
        assert cancellation is not None
        told = threading.Event()
        with cancellation.calling(told.set):
            self.begun.release()
            told.wait(30)
        try:
            cancellation.check()
        except Abandoned:
            self.stopped.append(request.turns[0].text[:1])
            raise
        raise AssertionError("nobody has told it to stop")


@pytest.mark.parametrize("text", ["x", SMALL, LARGE])
async def test_a_client_that_leaves_stops_its_work(text: str) -> None:
    preparer = Patient()
    preparation = Preparation(preparer, threads=2)
    for number in range(1, 4):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: preparation.run(request(text), most_tokens=None))
            await trio.to_thread.run_sync(preparer.begun.acquire)
            nursery.cancel_scope.cancel()
        while len(preparer.stopped) < number:
            await trio.lowlevel.checkpoint()


async def test_work_that_waits_for_a_thread_never_begins_once_its_client_has_left() -> None:
    preparer = Patient()
    preparation = Preparation(preparer, threads=1)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(lambda: preparation.run(request(LARGE), most_tokens=None))
        await trio.to_thread.run_sync(preparer.begun.acquire)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    while not preparer.stopped:
        await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()
    assert len(preparer.stopped) == 1
    assert not preparer.begun.acquire(blocking=False)


@pytest.mark.contract("EXEC-017")
async def test_a_strangers_template_is_never_rendered_in_place() -> None:
    threads: list[int] = []

    @attrs.define(eq=False)
    class Where(ByteBuilder):
        def build(
            self,
            request: GenerationRequest,
            *,
            most_tokens: int | None = None,
            cancellation: Cancellation | None = None,
        ) -> PreparedPrompt:
            threads.append(threading.get_ident())
            return super().build(request, most_tokens=most_tokens, cancellation=cancellation)

    for in_place in (True, False):
        async with open_service(FakeDevice(choose=choose_letter), builder=Where(in_place=in_place)) as house:
            await house.service.count_tokens(request("Hello"))
    assert [thread == threading.get_ident() for thread in threads] == [True, False]


async def test_what_a_generation_may_have_is_the_context_and_what_a_count_may_have_is_not() -> None:
    asked: list[int | None] = []

    @attrs.define(eq=False)
    class Bounded(ByteBuilder):
        def build(
            self,
            request: GenerationRequest,
            *,
            most_tokens: int | None = None,
            cancellation: Cancellation | None = None,
        ) -> PreparedPrompt:
            asked.append(most_tokens)
            return super().build(request, most_tokens=most_tokens, cancellation=cancellation)

    async with open_service(FakeDevice(choose=choose_letter), builder=Bounded(), context_tokens=777) as house:
        for text in ("Hello", "x" * 700 + "y" * 7500):
            await house.service.count_tokens(request(text))
            with contextlib.suppress(ContextExceeded):
                async with house.service.generate(request(text)) as events:
                    await anext(events)
    assert asked == [None, 777, None, 777]
