"""Same request, same seed, same tokens, whatever shares the batch: bit for bit, through worker and scheduler.

Requests arrive at random, with prompts of any length, under any chunk size, in pools so small that some are paused and
replayed; some are cancelled. Behind every token that anyone generated stands the logits row that the request gets when
it is alone: equal in all 32 bits of every element. A small golden model, and a wide random one, whose rows times width
pass the sizes at which XLA changes its reductions. Rows are compared also where a replay computes them again.
"""

from collections.abc import Callable
from functools import cache

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninfer.engine.cache import pages_for
from ninfer.engine.programs import JaxDevice, PerLayer
from ninfer.engine.types import PAGE_TOKENS, Finished, Plan, Prompt, Sampling
from tests.engine.model.golden import WIDE, golden, random_weights
from tests.engine.programs.conftest import CHUNK_TOKENS, CONTEXT_TOKENS, LANES, POOL_PAGES
from tests.engine.programs.recording import RecordingDevice, Rows
from tests.fakes.engine import ManualEngine, limits


@attrs.frozen(kw_only=True, repr=False)
class Ground:
    """A device and the requests that are made to it again and again, so that their lone runs are made once."""

    device: JaxDevice
    lanes: int
    pages: int
    chunk_tokens: int
    context_tokens: int
    requests: tuple[tuple[Prompt, Plan], ...]
    alone: Callable[[int], tuple[tuple[int, ...], Rows]]
    """Tokens and rows of a request by itself, with the largest chunk."""


@attrs.frozen(kw_only=True)
class Arrival:
    """Request `index` comes `gap` steps after the one before, and is cancelled after `patience` steps, if at all."""

    index: int
    gap: int
    patience: int | None


def engine(ground: Ground, *, lanes: int, pages: int, chunk_tokens: int) -> tuple[ManualEngine, Rows]:
    recording = RecordingDevice(ground.device, total_pages=pages, total_slots=ground.lanes)
    within = limits(lanes=lanes, pages=pages, context_tokens=ground.context_tokens, chunk_tokens=chunk_tokens)
    return ManualEngine(recording, within), recording.rows


def make_ground(
    device: JaxDevice, *, vocabulary: int, lanes: int, pages: int, chunk: int, context: int, count: int, new: int
) -> Ground:
    """`count` requests with prompts from 1 to the longest that fits, every sampler, some with stop tokens."""
    rng = np.random.default_rng(3)
    longest = min(400, context - new)
    lengths = [1, longest, 63, 64, 65, *rng.integers(1, longest + 1, count)][:count]
    requests = []
    for seed, length in enumerate(lengths):
        sampling = Sampling(
            temperature=float(rng.choice([0.0, 0.7, 1.0])),
            top_p=0.95,
            presence_penalty=float(rng.choice([0.0, 1.5])),
            seed=seed,
        )
        stops = frozenset(rng.integers(0, vocabulary, vocabulary // 40).tolist() if seed % 3 == 0 else ())
        prompt = Prompt(tuple(rng.integers(0, vocabulary, int(length)).tolist()))
        requests.append((prompt, Plan(sampling=sampling, max_new_tokens=int(rng.integers(1, new)), stop_tokens=stops)))

    @cache
    def alone(index: int) -> tuple[tuple[int, ...], Rows]:
        made, rows = engine(ground, lanes=1, pages=pages, chunk_tokens=chunk)
        ticket = made.submit(*requests[index])
        made.step()
        made.finish()
        return made.tokens(ticket), rows

    ground = Ground(
        device=device,
        lanes=lanes,
        pages=pages,
        chunk_tokens=chunk,
        context_tokens=context,
        requests=tuple(requests),
        alone=alone,
    )
    return ground


def check(ground: Ground, arrivals: list[Arrival], *, lanes: int, pages: int, chunk_tokens: int) -> int:
    """Run one history and compare; how often somebody was paused."""
    made, rows = engine(ground, lanes=lanes, pages=pages, chunk_tokens=chunk_tokens)
    compiled, leaving, tickets, step = ground.device.compilations, {}, {}, 0
    for arrival in arrivals:
        for _ in range(arrival.gap):
            step = turn(made, leaving, step)
        ticket = made.submit(*ground.requests[arrival.index])
        tickets[ticket] = arrival.index
        if arrival.patience is not None:
            leaving[ticket] = step + arrival.patience
    step = turn(made, leaving, step)
    while made.busy:
        step = turn(made, leaving, step)
        assert step < 20_000
    for ticket, index in tickets.items():
        tokens, _ = ground.alone(index)
        if made.events[ticket] and isinstance(made.last(ticket), Finished):
            assert made.tokens(ticket) == tokens
        else:
            assert ticket in leaving
            assert made.tokens(ticket) == tokens[: len(made.tokens(ticket))]
    expected = {place: row for index in set(tickets.values()) for place, row in ground.alone(index)[1].items()}
    different = [place for place, row in rows.items() if place in expected and row != expected[place]]
    assert not different, f"other bits at (seed, position) {different[:5]}"
    assert made.worker.figures.free_pages == pages
    assert ground.device.compilations == compiled
    return made.worker.figures.pauses


def turn(made: ManualEngine, leaving: dict[int, int], step: int) -> int:
    for ticket in [ticket for ticket, at in leaving.items() if at == step]:
        made.worker.cancel(ticket)
    made.step()
    return step + 1


def histories(ground: Ground, most: int) -> st.SearchStrategy[list[Arrival]]:
    arrival = st.builds(
        Arrival,
        index=st.integers(0, len(ground.requests) - 1),
        gap=st.integers(0, 12),
        patience=st.none() | st.none() | st.integers(0, 30),
    )
    return st.lists(arrival, min_size=2, max_size=most)


def play(ground: Ground, data: st.DataObject, most: int) -> None:
    """One history that Hypothesis makes up."""
    least = least_pages(ground)
    check(
        ground,
        data.draw(histories(ground, most)),
        lanes=data.draw(st.integers(1, ground.lanes)),
        pages=data.draw(st.integers(least, min(2 * least, ground.pages))),
        chunk_tokens=PAGE_TOKENS * data.draw(st.integers(1, ground.chunk_tokens // PAGE_TOKENS)),
    )


def least_pages(ground: Ground) -> int:
    """A pool in which each request fits alone."""
    return max(pages_for(len(prompt.tokens) + plan.max_new_tokens) for prompt, plan in ground.requests)


@pytest.fixture(scope="session")
def golden_ground(device: JaxDevice) -> Ground:
    return make_ground(
        device, vocabulary=290, lanes=LANES, pages=POOL_PAGES, chunk=CHUNK_TOKENS, context=CONTEXT_TOKENS,
        count=12, new=90,
    )  # fmt: skip


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nothing_that_others_do_shows(golden_ground: Ground, data: st.DataObject) -> None:
    play(golden_ground, data, 10)


@pytest.mark.contract("SCHED-010")
def test_a_pool_too_small_pauses_and_replays_without_a_trace(golden_ground: Ground) -> None:
    """Everybody at once in a pool that holds one and a bit: the replay is not left to chance."""
    crowd = [Arrival(index=index, gap=1, patience=None) for index in range(12)]
    assert check(golden_ground, crowd, lanes=LANES, pages=least_pages(golden_ground), chunk_tokens=64) > 0


@pytest.fixture(scope="module", params=["golden", "wide"])
def long_ground(request: pytest.FixtureRequest) -> Ground:
    """Eight lanes, chunks up to 512, prompts up to 400."""
    config, weights = (golden().config, golden().weights) if request.param == "golden" else (WIDE, random_weights(WIDE))
    sizes = {"lanes": 8, "prefill_chunk_tokens": 512, "max_context_tokens": 512, "total_pages": 48}
    device = JaxDevice(PerLayer(config, weights), **sizes)
    device.prepare()
    vocabulary = 290 if request.param == "golden" else WIDE.vocab_size
    return make_ground(device, vocabulary=vocabulary, lanes=8, pages=48, chunk=512, context=512, count=40, new=90)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nothing_that_others_do_shows_for_long(long_ground: Ground, data: st.DataObject) -> None:
    play(long_ground, data, 16)


@pytest.mark.slow
@pytest.mark.parametrize("chunk_tokens", range(64, 513, 64))
def test_eight_lanes_and_every_chunk_size(long_ground: Ground, chunk_tokens: int) -> None:
    crowd = [Arrival(index=(chunk_tokens // 64 + 3 * i) % 40, gap=i % 5, patience=None) for i in range(24)]
    check(long_ground, crowd, lanes=8, pages=20, chunk_tokens=chunk_tokens)
