"""An engine that is not there yet refuses work; from the moment it is there, it is that engine."""

import pytest

from ninfer.engine.engine import open_engine
from ninfer.engine.opening import OpeningEngine
from ninfer.engine.types import EngineLimits, EngineStarting, Plan, Prompt, Sampling
from tests.fakes.device import FakeDevice

LIMITS = EngineLimits(max_context_tokens=256, lanes=1, kv_capacity_tokens=512, prefill_chunk_tokens=64)
PROMPT, PLAN = Prompt((1, 2)), Plan(sampling=Sampling(temperature=0), max_new_tokens=1)


async def test_until_then_it_refuses() -> None:
    engine = OpeningEngine(LIMITS)
    assert engine.limits is LIMITS
    assert isinstance(engine.failure, EngineStarting)
    with pytest.raises(EngineStarting):
        engine.submit(PROMPT, PLAN)
    with pytest.raises(EngineStarting):
        engine.figures()


async def test_from_then_on_it_is_the_engine() -> None:
    engine = OpeningEngine(LIMITS)
    async with open_engine(FakeDevice(), LIMITS) as real:
        engine.become(real)
        assert engine.limits is real.limits
        assert engine.failure is None
        async with engine.submit(PROMPT, PLAN) as events:
            assert [type(event).__name__ async for event in events][-1] == "Finished"
        assert engine.figures().prefilled_tokens == 2
        with pytest.raises(RuntimeError):
            engine.become(real)
    assert engine.failure is not None
