"""A service over the real engine and a `FakeDevice`, with one byte a token: everything but a model and a template."""

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs

from ninfer.conversation import GenerationRequest, ModelCard
from ninfer.engine.device import SampleRow
from ninfer.engine.engine import RunningEngine, open_engine
from ninfer.engine.types import EngineLimits
from ninfer.prompt import Cancellation, PreparedPrompt
from ninfer.reply import ReplyTokens
from ninfer.service import SamplerRules, Service, ServiceSettings, ThinkingRules
from ninfer.testing import CARD
from tests.fakes.device import FakeDevice

STOP_TOKEN = 256
THINK_OPEN, THINK_CLOSE = 257, 258
ALPHABET = b"abcdefghij klmnop\n"


def choose_letter(state: int, row: SampleRow) -> int:
    """A letter that depends on all tokens before it and on the seed; never the stop token."""
    return ALPHABET[(state * 2_654_435_761 + row.sampling.seed + row.position) % 1_000_003 % len(ALPHABET)]


def saying(reply: str | Sequence[int], *, after: int) -> Callable[[int, SampleRow], int]:
    """Chooses the bytes or tokens of `reply` behind a prompt of `after` tokens, then the stop token."""
    tokens = (*(reply.encode() if isinstance(reply, str) else reply), STOP_TOKEN)

    def choose(state: int, row: SampleRow) -> int:
        return tokens[min(row.position - after, len(tokens) - 1)]

    return choose


def token_bytes(token: int) -> bytes:
    """One byte a token; the control tokens spelled out."""
    return {STOP_TOKEN: b"<end>", THINK_OPEN: b"<think>", THINK_CLOSE: b"</think>"}.get(token) or bytes([token])


REPLY_TOKENS = ReplyTokens(
    token_bytes=token_bytes,
    hidden=frozenset({STOP_TOKEN}),
    reasoning_open=THINK_OPEN,
    reasoning_close=THINK_CLOSE,
)


@attrs.define(eq=False)
class ByteBuilder:
    """A `Preparer`: the prompt is the bytes of all texts. `gate`, given one, holds a build until it is set."""

    in_place: bool = True
    gate: threading.Event | None = None
    error: Exception | None = None
    opens_in_reasoning: bool = False
    thinking: bool = False
    builds: int = 0
    """Builds that were begun."""
    ended: int = 0

    def build(
        self, request: GenerationRequest, *, most_tokens: int | None = None, cancellation: Cancellation | None = None
    ) -> PreparedPrompt:
        """The prompt; blocks its thread while the gate is shut."""
        self.builds += 1
        try:
            if self.gate is not None:
                self.gate.wait(30)
        finally:
            self.ended += 1
        if self.error is not None:
            raise self.error
        return PreparedPrompt(
            tokens=tuple("".join(turn.text for turn in request.turns).encode()),
            opens_in_reasoning=self.opens_in_reasoning,
            thinking=self.thinking,
        )


@attrs.frozen(kw_only=True)
class OpenService:
    """A running service and what it stands on."""

    service: Service
    engine: RunningEngine
    device: FakeDevice
    builder: ByteBuilder


@asynccontextmanager
async def open_service(
    device: FakeDevice | None = None,
    *,
    lanes: int = 1,
    context_tokens: int = 4096,
    settings: ServiceSettings | None = None,
    sampler: SamplerRules | None = None,
    builder: ByteBuilder | None = None,
    reply_tokens: ReplyTokens = REPLY_TOKENS,
    model: ModelCard = CARD,
    thinking: ThinkingRules | None = None,
) -> AsyncIterator[OpenService]:
    """Run the engine over `device` and a service over the engine, as long as the block lasts."""
    device = FakeDevice(total_slots=lanes, choose=choose_letter) if device is None else device
    builder = ByteBuilder() if builder is None else builder
    limits = EngineLimits(
        max_context_tokens=context_tokens,
        lanes=lanes,
        kv_capacity_tokens=device.total_pages * 64,
        prefill_chunk_tokens=128,
    )
    async with open_engine(device, limits) as engine:
        service = Service(
            engine=engine,
            preparer=builder,
            reply_tokens=reply_tokens,
            stop_tokens=frozenset({STOP_TOKEN}),
            model=model,
            sampler=SamplerRules(architecture="qwen3_5") if sampler is None else sampler,
            settings=ServiceSettings() if settings is None else settings,
            thinking=thinking,
        )
        yield OpenService(service=service, engine=engine, device=device, builder=builder)
