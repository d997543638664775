"""The scheduler under random arrivals, sizes, cancels and failures, over a device that checks what it is fed."""

import random
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ninfer.engine.types import EngineLimits, Plan, Sampling, ThinkingBudget
from tests.engine.scheduler.driver import Driver
from tests.fakes.device import InjectedFault
from tests.fakes.engine import prompt

MARKS = pytest.mark.contract("SCHED-003", "SCHED-006", "SCHED-010", "KV-014")
LONG_MARKS = pytest.mark.contract("SCHED-003", "SCHED-013", "EXEC-012")


NO = AssertionError("no")
FAULTS = [
    InjectedFault(on_dispatch=NO),
    InjectedFault(on_read=NO),
    InjectedFault(on_dispatch=NO, loses_memory=True),
    InjectedFault(on_read=NO, loses_memory=True),
    InjectedFault(faulty_rows=frozenset({0})),
]


def make_plan(max_new_tokens: int, stopping: bool, seed: int) -> Plan:
    # The fake chooses among 1,000 tokens: about every 33rd one stops.
    stops = frozenset(range(30)) if stopping else frozenset[int]()
    # Every other request thinks under a budget, whose text is longer than a page in some.
    budget = ThinkingBudget(limit_tokens=1 + seed, close_token=999, forced_tokens=tuple(range(1000, 1001 + seed)))
    return Plan(
        sampling=Sampling(temperature=0, seed=seed),
        max_new_tokens=max_new_tokens,
        stop_tokens=stops,
        thinking=budget if seed % 2 else None,
    )


def make_driver(lanes: int, pages: int, chunk_pages: int, context_pages: int) -> Driver:
    limits = EngineLimits(
        max_context_tokens=context_pages * 64 - 7,
        lanes=lanes,
        kv_capacity_tokens=pages * 64,
        prefill_chunk_tokens=chunk_pages * 64,
    )
    return Driver(limits, pages=pages)


class History(RuleBasedStateMachine):
    """One engine's life."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = make_driver(1, 4, 1, 4)

    @initialize(lanes=st.integers(1, 8), pages=st.integers(2, 24), chunk=st.integers(1, 3), context=st.integers(1, 12))
    def open(self, lanes: int, pages: int, chunk: int, context: int) -> None:
        self.driver = make_driver(lanes, pages, chunk, context)

    @precondition(lambda self: len(self.driver.live) < 24)
    @rule(length=st.integers(1, 400), new=st.integers(0, 200), stopping=st.booleans(), seed=st.integers(0, 99))
    def submit(self, length: int, new: int, stopping: bool, seed: int) -> None:
        self.driver.submit(prompt(length, seed), make_plan(new, stopping, seed))

    @precondition(lambda self: self.driver.live)
    @rule(chance=st.randoms(use_true_random=False))
    def cancel(self, chance: random.Random) -> None:
        self.driver.cancel(chance.choice(list(self.driver.live)))

    @rule(turns=st.integers(1, 40))
    def go_on(self, turns: int) -> None:
        for _ in range(turns):
            self.driver.turn()

    @rule(fault=st.sampled_from(FAULTS))
    def fail(self, fault: InjectedFault) -> None:
        self.driver.next_fault = fault
        self.driver.turn()

    def teardown(self) -> None:
        self.driver.next_fault = InjectedFault()
        self.driver.drain()


class LongHistory(History):
    """The same, longer and more often."""


TestHistory = MARKS(History.TestCase)
TestHistory.settings = settings(stateful_step_count=40)
TestLongHistory = pytest.mark.slow(LongHistory.TestCase)
TestLongHistory.settings = settings(max_examples=2000, stateful_step_count=100)


def run_history(seed: int, turns: int) -> Counter[str]:
    """A history of `turns` turns with new memory, lanes and chunk every 2,000 of them; what has happened in it."""
    chance = random.Random(seed)
    seen: Counter[str] = Counter()
    while seen["turns"] < turns:
        lanes = chance.randint(1, 8)
        driver = make_driver(lanes, chance.randint(lanes, 3 * lanes + 2), chance.randint(1, 3), chance.randint(2, 12))
        busy = chance.choice([0.01, 0.05, 0.2])
        while driver.turns < 2000:
            if len(driver.live) < 16 and chance.random() < busy:
                length, new = chance.choice([(20, 8), (60, 300), (120, 150), (400, 200)])
                salt = chance.randrange(50)
                plan = make_plan(chance.randint(0, new), chance.random() < 0.2, salt)
                driver.submit(prompt(chance.randint(1, length), salt), plan)
            if driver.live and chance.random() < 0.003:
                driver.cancel(chance.choice(list(driver.live)))
            if chance.random() < 0.003:
                driver.next_fault = chance.choice(FAULTS)
            driver.turn()
        driver.next_fault = InjectedFault()
        driver.drain()
        figures = driver.scheduler.figures(compilations=0, recoveries=0)
        seen.update(turns=driver.turns, pauses=figures.pauses, replayed=figures.replayed_tokens)
        seen.update(losses=driver.device.losses, forced=figures.forced_tokens)
        seen.update(type(request.outcome).__name__ for request in driver.requests.values())
    return seen


@LONG_MARKS
@pytest.mark.parametrize("seed", [0, 1, 3, 4])  # the sizes that seed 2 draws hardly make anybody pause
def test_seeded_history(seed: int) -> None:
    holds_what_it_is_for(run_history(seed, 10_000))


def holds_what_it_is_for(seen: Counter[str]) -> None:
    """The driver judges every turn; here that enough has happened."""
    assert seen["pauses"] > 10
    assert seen["replayed"] > 1000
    assert seen["Finished"] > 100
    assert seen["losses"] > 3
    assert seen["forced"] > 1000


@pytest.mark.slow
@LONG_MARKS
def test_a_million_turns() -> None:
    seen = run_history(2024, 1_000_000)
    assert seen["turns"] >= 1_000_000
    holds_what_it_is_for(seen)
