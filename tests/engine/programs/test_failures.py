"""Failures of real units: what a fault takes with it, and that the replays after it change no bit."""

from collections.abc import Sequence
from typing import TypeAlias

import attrs
import jax
import numpy as np
import pytest

from ninfer.engine.device import DecodeRow, Pending, PrefillUnit, SampleRow, UnitResult
from ninfer.engine.programs import JaxDevice, JaxPending
from ninfer.engine.types import (
    DeviceLost,
    EngineStopped,
    Failed,
    Finished,
    Plan,
    Prompt,
    Sampling,
    ThinkingBudget,
    UnitFailed,
)
from tests.engine.programs.conftest import CHUNK_TOKENS, CONTEXT_TOKENS, LANES
from tests.engine.programs.drive import Lane, pages_for
from tests.fakes.device import InjectedFault, Kind
from tests.fakes.engine import ManualEngine, limits

NO_FAULT = InjectedFault()
PAGES = 24


Bits: TypeAlias = dict[tuple[int, int], set[bytes]]
"""(seed, position of the token) -> the logits rows it was ever chosen from; each request has a seed of its own."""


@attrs.define(eq=False)
class FaultyPending:
    """A real unit with a fault behind it."""

    device: "FaultyDevice"
    inner: JaxPending
    samples: Sequence[SampleRow]
    fault: InjectedFault

    def read(self) -> UnitResult:
        result = self.inner.read()
        for sample, row in zip(self.samples, self.inner.read_logits(), strict=True):
            self.device.bits.setdefault((sample.sampling.seed, sample.position), set()).add(bits_of(row))
        if self.fault.on_read is not None:
            if self.fault.loses_memory:
                self.device.destroy()
            raise self.fault.on_read
        return result


@attrs.define(eq=False)
class FaultyDevice:
    """Real units around which things go wrong: before one, or after it with its memory destroyed."""

    inner: JaxDevice
    faults: dict[tuple[Kind, int], InjectedFault]
    """(kind, how many of that kind came before) -> what goes wrong."""
    seen: dict[Kind, int] = attrs.field(factory=lambda: {"prefill": 0, "decode": 0})
    total_pages: int = PAGES
    total_slots: int = LANES
    losses: int = 0
    bits: Bits = attrs.field(factory=dict)

    @property
    def compilations(self) -> int:
        return self.inner.compilations

    def prepare(self) -> None:
        """It is prepared."""

    def destroy(self) -> None:
        """What donation leaves when the program behind it fails."""
        for leaf in jax.tree.leaves(self.inner._memory):
            leaf.delete()

    def recover(self) -> bool:
        lost = self.inner.recover()
        self.losses += lost
        return lost

    def prefill(self, unit: PrefillUnit) -> Pending:
        fault = self._next("prefill")
        return FaultyPending(self, self.inner.prefill(unit), [unit.sample] if unit.sample else [], fault)

    def decode(self, rows: tuple[DecodeRow, ...]) -> Pending:
        fault = self._next("decode")
        return FaultyPending(self, self.inner.decode(rows), [row.sample for row in rows], fault)

    def _next(self, kind: Kind) -> InjectedFault:
        number, self.seen[kind] = self.seen[kind], self.seen[kind] + 1
        fault = self.faults.get((kind, number), NO_FAULT)
        if fault.on_dispatch is not None:
            if fault.loses_memory:
                self.destroy()
            raise fault.on_dispatch
        return fault


REQUESTS = [(50, 40, 0.0), (70, 30, 1.0), (200, 20, 0.7), (64, 25, 1.0), (190, 9, 0.0)]
"""Prompt tokens, new tokens, temperature."""
BUDGET = ThinkingBudget(limit_tokens=12, close_token=299, forced_tokens=(17, 4, 299, 10))


def request(seed: int) -> tuple[Prompt, Plan]:
    length, new, temperature = REQUESTS[seed]
    sampling = Sampling(temperature=temperature, seed=seed, presence_penalty=0.5)
    tokens = tuple(int(token) for token in np.random.default_rng(seed).integers(0, 290, length))
    return Prompt(tokens), Plan(sampling=sampling, max_new_tokens=new, thinking=BUDGET if seed % 2 else None)


def bits_of(row: np.ndarray) -> bytes:
    return np.ascontiguousarray(row).view(np.uint32).tobytes()


def run(
    device: JaxDevice, faults: dict[tuple[Kind, int], InjectedFault], *, pages: int = PAGES
) -> tuple[ManualEngine, FaultyDevice]:
    faulty = FaultyDevice(device, faults, total_pages=pages)
    within = limits(lanes=LANES, pages=pages, context_tokens=CONTEXT_TOKENS, chunk_tokens=CHUNK_TOKENS)
    made = ManualEngine(faulty, within)
    for seed in range(len(REQUESTS)):
        made.submit(*request(seed))
    made.step()
    made.finish()
    assert (made.worker.figures.free_pages, made.worker.figures.free_slots) == (pages, LANES)
    return made, faulty


OUT_OF_MEMORY = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes")


@attrs.frozen
class Whole:
    """What the requests say when nothing goes wrong."""

    tokens: list[tuple[int, ...]]
    bits: Bits


@pytest.fixture(scope="module")
def undisturbed(device: JaxDevice) -> Whole:
    made, recorded = run(device, {})
    return Whole([made.tokens(ticket) for ticket in range(len(REQUESTS))], recorded.bits)


@pytest.mark.contract("LIFE-022", "SCHED-010", "THINK-006")
@pytest.mark.parametrize(
    ("kind", "number"), [("prefill", 0), ("prefill", 3), ("decode", 0), ("decode", 7), ("decode", 18)]
)
@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("where", ["dispatch", "read"])
def test_a_failed_unit_ends_its_own_requests(
    device: JaxDevice, undisturbed: Whole, kind: Kind, number: int, loses: bool, where: str
) -> None:
    fault = (
        InjectedFault(on_dispatch=OUT_OF_MEMORY, loses_memory=loses)
        if where == "dispatch"
        else InjectedFault(on_read=OUT_OF_MEMORY, loses_memory=loses)
    )
    compiled = device.compilations
    made, faulty = run(device, {(kind, number): fault})
    outcomes = [made.last(ticket) for ticket in range(len(REQUESTS))]
    ended = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    assert 1 <= len(ended) <= (1 if kind == "prefill" else LANES)
    assert all(isinstance(outcome.error, UnitFailed) and outcome.error.out_of_memory for outcome in ended)
    for ticket, outcome in enumerate(outcomes):
        heard, whole = made.tokens(ticket), undisturbed.tokens[ticket]
        assert heard == (whole if isinstance(outcome, Finished) else whole[: len(heard)])
    for place, rows in faulty.bits.items():
        assert rows <= undisturbed.bits[place], f"seed and position {place}"
    assert faulty.losses == made.worker.figures.losses == int(loses)
    assert device.compilations == compiled


@pytest.mark.contract("THINK-006", "SCHED-010")
def test_forced_tokens_are_fed_like_chosen_ones_and_replayed_like_them(device: JaxDevice, undisturbed: Whole) -> None:
    """By hand, token by token: behind the forced tokens every logits row has the bits that it has in the engine."""
    asked, how = request(1)
    said = undisturbed.tokens[1]
    assert said[12:16] == BUDGET.forced_tokens
    one = Lane(device, 0, pages_for(200, range(PAGES)), asked.tokens, how.sampling)
    one.prefill(CHUNK_TOKENS)
    for index, token in enumerate(said):
        position = len(asked.tokens) + index
        assert undisturbed.bits[1, position] == {bits_of(one.logits[-1])}, f"token {index}"
        one.tokens[-1] = token
        pending = device.decode((one.row(token),))
        one.tokens += pending.read().tokens
        one.logits.append(pending.read_logits()[0].copy())
    crowded, recorded = run(device, {}, pages=5)
    assert crowded.worker.figures.pauses >= 1
    assert [crowded.tokens(ticket) for ticket in range(len(REQUESTS))] == undisturbed.tokens
    assert recorded.bits == undisturbed.bits


@pytest.mark.contract("LIFE-024", "D14")
def test_nine_losses_in_a_row_stop_the_engine(device: JaxDevice) -> None:
    fault = InjectedFault(on_dispatch=OUT_OF_MEMORY, loses_memory=True)
    made = ManualEngine(
        FaultyDevice(device, {("prefill", number): fault for number in range(99)}),
        limits(lanes=LANES, pages=PAGES, context_tokens=CONTEXT_TOKENS, chunk_tokens=CHUNK_TOKENS),
    )
    for _ in range(12):
        made.submit(*request(0))
    with pytest.raises(EngineStopped, match="9 units in a row have failed"):
        made.run_until(lambda: False, most_steps=50)
    device.recover()


@pytest.mark.contract("LIFE-027")
def test_a_device_error_is_not_recovered(device: JaxDevice) -> None:
    error = jax.errors.JaxRuntimeError("INTERNAL: an illegal memory access was encountered")
    made = ManualEngine(
        FaultyDevice(device, {("decode", 2): InjectedFault(on_read=error)}),
        limits(lanes=LANES, pages=PAGES, context_tokens=CONTEXT_TOKENS, chunk_tokens=CHUNK_TOKENS),
    )
    made.submit(*request(0))
    with pytest.raises(DeviceLost, match="the device failed: INTERNAL: an illegal memory access"):
        made.run_until(lambda: False, most_steps=50)


def test_a_unit_that_is_refused_has_taken_nothing(device: JaxDevice) -> None:
    with pytest.raises(ValueError, match="room for"):
        device.prefill(PrefillUnit(slot=0, pages=tuple(range(6)), start=0, tokens=(1,) * 200))
    assert not device.recover()
