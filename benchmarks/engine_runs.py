"""Runs of one model through the real engine: rates, prompt speed, gaps between tokens, the host's share.

The engine's face is what a request sees: prompts of token ids go in, events come out over a channel, and times are
taken where the events are received. No HTTP, no text.
"""

import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import attrs
import trio

from benchmarks.engine_models import BenchModel
from benchmarks.engine_seams import Seams, TimedDevice, TimedEngine
from ninfer.engine.types import Admitted, EngineLimits, Failed, Plan, Prompt, Sampling, Tokens

CHUNKS = (64, 128, 256, 512)
PROMPT_TOKENS = 32
"""Of the requests whose decoding is measured."""


@attrs.define(eq=False)
class Stage:
    """A model on a prepared device, on which engines are opened one after the other."""

    model: BenchModel
    device: TimedDevice
    seams: Seams
    lanes: int

    @asynccontextmanager
    async def engine(self, chunk_tokens: int) -> AsyncIterator[TimedEngine]:
        """An engine with this prefill chunk."""
        limits = EngineLimits(
            max_context_tokens=self.model.context_tokens,
            lanes=self.lanes,
            kv_capacity_tokens=self.device.total_pages * 64,
            prefill_chunk_tokens=chunk_tokens,
        )
        engine = TimedEngine(self.device, limits)
        await engine.open()
        try:
            yield engine
        finally:
            await engine.close()

    def prompt(self, length: int, salt: int) -> Prompt:
        """A prompt of token ids that means nothing."""
        most = self.model.config.vocab_size // 2
        return Prompt(tuple((salt * 7919 + index * 31) % most for index in range(length)))


@attrs.define
class Heard:
    """When things were heard of one request, seconds."""

    asked_s: float = 0.0
    admitted_s: float = math.nan
    tokens_s: list[float] = attrs.field(factory=list)  # one entry a token

    @property
    def gaps_s(self) -> Iterator[tuple[float, float]]:
        """(when it ended, how long it was) of each gap between tokens."""
        for before, after in zip(self.tokens_s, self.tokens_s[1:], strict=False):
            yield after, after - before


async def listen(
    engine: TimedEngine, prompt: Prompt, new_tokens: int, heard: Heard, started: trio.Event | None = None
) -> None:
    """One greedy request without stop tokens, from its start to its end; `started` is set with its fourth token."""
    plan = Plan(sampling=Sampling(temperature=0), max_new_tokens=new_tokens)
    heard.asked_s = time.perf_counter()
    async with engine.submit(prompt, plan) as events:
        async for event in events:
            now_s = time.perf_counter()
            match event:
                case Admitted():
                    heard.admitted_s = now_s
                case Tokens(tokens):
                    heard.tokens_s += [now_s] * len(tokens)
                    if started is not None and len(heard.tokens_s) >= 4:
                        started.set()
                case Failed(error):
                    raise error


async def decode_rate(stage: Stage, engine: TimedEngine, batch: int, new_tokens: int) -> float:
    """Tokens a second of `batch` requests together, while all of them decode."""
    heard = [Heard() for _ in range(batch)]
    async with trio.open_nursery() as nursery:
        for index, one in enumerate(heard):
            nursery.start_soon(listen, engine, stage.prompt(PROMPT_TOKENS, index), new_tokens + batch, one)
    begin_s, end_s = max(one.tokens_s[0] for one in heard), min(one.tokens_s[-1] for one in heard)
    return sum(sum(begin_s < at_s <= end_s for at_s in one.tokens_s) for one in heard) / (end_s - begin_s)


async def prefill_rate(stage: Stage, chunk_tokens: int, length: int) -> float:
    """Prompt tokens a second of a lone prompt, up to its first token."""
    heard = Heard()
    async with stage.engine(chunk_tokens) as engine:
        await listen(engine, stage.prompt(length, chunk_tokens), 1, heard)
    return length / (heard.tokens_s[0] - heard.asked_s)


@attrs.frozen(kw_only=True)
class Gaps:
    """Seconds between the tokens of a decoding request, while a foreign prompt prefills and when it is alone."""

    chunk_tokens: int
    during_s: tuple[float, ...]
    alone_s: tuple[float, ...]
    chunk_s: float
    """One chunk by itself: the lone prompt's time over its chunks."""


async def gaps(stage: Stage, chunk_tokens: int, length: int, new_tokens: int) -> Gaps:
    """A request decodes for all of the time; after its first tokens another one comes with a prompt of `length`."""
    alone, decoding, foreign, lone = Heard(), Heard(), Heard(), Heard()
    async with stage.engine(chunk_tokens) as engine:
        await listen(engine, stage.prompt(length, 5), 1, lone)
        await listen(engine, stage.prompt(PROMPT_TOKENS, 1), new_tokens, alone)
        started = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen, engine, stage.prompt(PROMPT_TOKENS, 2), new_tokens * 2, decoding, started)
            await started.wait()
            await listen(engine, stage.prompt(length, 3), 1, foreign)
    first_s, last_s = foreign.admitted_s, foreign.tokens_s[0]
    return Gaps(
        chunk_tokens=chunk_tokens,
        during_s=tuple(gap_s for end_s, gap_s in decoding.gaps_s if first_s < end_s <= last_s),
        alone_s=tuple(gap_s for _, gap_s in alone.gaps_s),
        chunk_s=(lone.tokens_s[0] - lone.asked_s) / math.ceil(length / chunk_tokens),
    )


async def host_parts(stage: Stage, engine: TimedEngine, batch: int, new_tokens: int) -> dict[str, tuple[float, float]]:
    """Part of a turn -> microseconds of CPU and of the wall, with `batch` requests decoding."""
    stage.seams.stamps.clear()
    stage.seams.record = True
    await decode_rate(stage, engine, batch, new_tokens)
    stage.seams.record = False
    return stage.seams.parts_us()
