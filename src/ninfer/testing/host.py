"""`FakeHost`: a `ServiceHost` that plays a script of events, so protocols and the server run without an engine.

It knows events and time, no prompt: what a request asks for is kept in `requests` and changes nothing. Invariant: a
script is one that the real host could play.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TypeAlias

import attrs
import trio

from ninfer.conversation import (
    CallMade,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    ModelCard,
    NotFound,
    Started,
    TextDelta,
    Timings,
    ToolCall,
    Usage,
)
from ninfer.service.host import ProtocolFlags
from ninfer.testing.order import check_order

Step: TypeAlias = Event | Exception | float | trio.Event
"""An event to yield, an error to raise, seconds to wait, or a Trio event to wait for."""

CARD = ModelCard(
    id="lab/tiny model",
    max_context_tokens=4096,
    native_context_tokens=262144,
    vocabulary_tokens=256,
    embedding_width=64,
    parameters=123_456,
    weight_bytes=246_912,
    dominant_format="bf16",
    created_unix_s=1_700_000_000,
)


def finished(reason: FinishReason = FinishReason.STOP_TOKEN, stop: str | None = None) -> Finished:
    """An end with counts that no two members share."""
    return Finished(
        reason=reason,
        usage=Usage(prompt_tokens=11, cached_tokens=4, completion_tokens=7, reasoning_tokens=3),
        timings=Timings(prompt_s=0.25, generation_s=0.5),
        stop=stop,
    )


def call_made(name: str, arguments: Mapping[str, object], *, call_id: str = "call_1") -> CallMade:
    """The model has called a tool."""
    return CallMade(ToolCall(id=call_id, name=name, arguments=arguments))


def script(*texts: str, reasoning: Sequence[str] = (), end: Step | None = None) -> list[Step]:
    """A usual generation: admission, reasoning, answer, end."""
    return [
        Started(prompt_tokens=11, cached_tokens=4),
        *(TextDelta(text, "reasoning") for text in reasoning),
        *(TextDelta(text, "answer") for text in texts),
        finished() if end is None else end,
    ]


@attrs.define(eq=False)
class FakeHost:
    """Plays `steps` for every request; `on_enter` fails or delays the preparation."""

    steps: Sequence[Step] = attrs.field(factory=lambda: script("Hello"))
    """What `generate` yields, raises and waits for. Checked when it is set."""
    on_enter: Sequence[Step] = ()
    model: ModelCard = CARD
    flags: ProtocolFlags = attrs.field(factory=ProtocolFlags)
    accepts_work: bool = True
    starting: bool = False
    requests: list[GenerationRequest] = attrs.field(factory=list)
    """Every request that came, in order."""
    counted: int = 11
    """What every count comes to: the prompt of `script`."""
    open_generations: int = 0
    """Generations that are entered now: 0 after every request, however it has ended."""
    left: int = 0
    """Generations that were entered and have been left."""

    @steps.validator
    def _check_steps(self, _: object, steps: Sequence[Step]) -> None:
        check_order(steps)

    def check_model(self, model: str) -> None:
        """As the real one does."""
        if model != self.model.id:
            raise NotFound(f"model: {model!a} does not exist here", code="model_not_found", param="model")

    async def count_tokens(self, request: GenerationRequest) -> int:
        """`counted`, whatever the request is; `on_enter` comes before."""
        self.requests.append(request)
        async with aclosing(_play(self.on_enter)) as entering:
            async for _ in entering:
                pass
        return self.counted

    @asynccontextmanager
    async def generate(self, request: GenerationRequest) -> AsyncIterator[AsyncIterator[Event]]:
        """Play the script once."""
        self.requests.append(request)
        self.open_generations += 1
        try:
            async with aclosing(_play(self.on_enter)) as entering:
                async for _ in entering:
                    pass
            async with aclosing(_play(self.steps)) as events:
                yield events
        finally:
            self.open_generations -= 1
            self.left += 1


async def _play(steps: Sequence[Step]) -> AsyncGenerator[Event, None]:
    for step in steps:
        if isinstance(step, Exception):
            raise step
        if isinstance(step, trio.Event):
            await step.wait()
        elif isinstance(step, float | int):
            await trio.sleep(step)
        else:
            await trio.lowlevel.checkpoint()
            yield step
