"""The scheduler, rule by rule: exact small histories without a device."""

import attrs
import pytest

from ninfer.engine.cache import LedgerError, pages_for
from ninfer.engine.device import UnitResult
from ninfer.engine.scheduler import UNPACED, DecodeStep, Note, Pacing, PrefillStep, Scheduler, StepPlan
from ninfer.engine.types import (
    Admitted,
    CapacityExceeded,
    EngineFigures,
    Failed,
    Finished,
    PromptProgress,
    StopReason,
    Tokens,
    UnitFailed,
)
from tests.engine.scheduler.driver import end_of, units
from tests.fakes.engine import limits, plan, prompt


class Bench:
    """A scheduler and what came of its steps; results come one turn late, as in the worker."""

    def __init__(self, *, lanes: int = 1, pages: int = 64, context_tokens: int = 4096, chunk_tokens: int = 128) -> None:
        self.scheduler = Scheduler(
            limits(lanes=lanes, pages=pages, context_tokens=context_tokens, chunk_tokens=chunk_tokens),
            total_pages=pages,
            total_slots=lanes,
        )
        self.notes: list[Note] = []
        self.behind: list[PrefillStep | DecodeStep] = []
        self.token = 7

    def submit(self, ticket: int, length: int, new: int, *stops: int, pacing: Pacing = UNPACED) -> None:
        self.notes += self.scheduler.submit(ticket, prompt(length, ticket), plan(new, *stops), pacing)

    def turn(self, now_s: float = 0.0, *, token: int | None = None) -> StepPlan:
        """One turn; every row chooses `token`."""
        planned = self.scheduler.plan(now_s)
        self.notes += planned.notes
        behind, self.behind = self.behind, [step for step in (planned.prefill, planned.decode) if step is not None]
        for step in behind:
            rows = len(step.rows) if isinstance(step, DecodeStep) else 1
            result = UnitResult((self.token if token is None else token,) * rows)
            self.notes += self.scheduler.commit(step, result, now_s).notes
        self.scheduler.check()
        return planned

    def told(self, ticket: int) -> list[object]:
        return [event for other, event in self.notes if other == ticket]

    @property
    def figures(self) -> EngineFigures:
        return self.scheduler.figures(compilations=0, recoveries=0)


def ran(planned: StepPlan) -> tuple[int | None, tuple[int, ...]]:
    """Who prefills and who decodes."""
    prefill = None if planned.prefill is None else planned.prefill.ticket
    return prefill, () if planned.decode is None else planned.decode.tickets


@pytest.mark.contract("EXEC-004", "D38")
def test_one_request_from_prompt_to_limit() -> None:
    bench = Bench()
    bench.submit(0, 200, 3)
    first, second, third, fourth, fifth, sixth = (bench.turn() for _ in range(6))
    assert first.prefill is not None
    assert second.prefill is not None
    assert (first.prefill.unit.start, len(first.prefill.unit.tokens), first.prefill.unit.sample) == (0, 128, None)
    assert (second.prefill.unit.start, len(second.prefill.unit.tokens)) == (128, 72)
    assert second.prefill.unit.sample is not None
    assert second.prefill.unit.sample.position == 200
    assert second.prefill.unit.pages[:2] == first.prefill.unit.pages
    assert third.decode is not None
    assert fourth.decode is not None
    row = third.decode.rows[0]
    assert (row.position, row.token, row.sample.position) == (200, None, 201)
    assert fourth.decode.rows[0].position == 201
    assert (fifth.prefill, fifth.decode) == (None, None)  # three tokens are chosen: nobody needs a fourth
    assert (sixth.prefill, sixth.decode) == (None, None)
    assert bench.told(0) == [
        Admitted(0, 0.0),
        PromptProgress(128, 0.0),
        PromptProgress(200, 0.0),
        Tokens((7,), 0.0),
        Tokens((7,), 0.0),
        Tokens((7,), 0.0),
        Finished(StopReason.OUTPUT_LIMIT),
    ]
    assert not bench.scheduler.has_work
    assert (bench.figures.free_pages, bench.figures.free_slots) == (64, 1)
    assert (bench.figures.prefilled_tokens, bench.figures.generated_tokens) == (200, 3)


@pytest.mark.parametrize(
    ("length", "new", "context_tokens", "reason", "tokens"),
    [
        (64, 0, 4096, StopReason.OUTPUT_LIMIT, 0),
        (64, 1, 4096, StopReason.OUTPUT_LIMIT, 1),
        (64, 9, 66, StopReason.CONTEXT_LIMIT, 2),
        (64, 2, 66, StopReason.OUTPUT_LIMIT, 2),
        (66, 9, 66, StopReason.CONTEXT_LIMIT, 0),
    ],
)
def test_limits_end_a_request(length: int, new: int, context_tokens: int, reason: StopReason, tokens: int) -> None:
    bench = Bench(context_tokens=context_tokens)
    bench.submit(0, length, new)
    for _ in range(8):
        bench.turn()
    assert bench.told(0)[-1] == Finished(reason)
    assert sum(isinstance(event, Tokens) for event in bench.told(0)) == tokens
    assert not bench.scheduler.has_work


@pytest.mark.contract("EXEC-005")
def test_a_stop_drops_the_row_that_runs_ahead_and_keeps_its_memory_until_it_is_back() -> None:
    bench = Bench(lanes=2)
    bench.submit(0, 10, 50, 9)
    bench.submit(1, 10, 50)
    bench.turn()
    bench.turn(token=9)  # reads the prefill of 0, which chose the stop token, after its first decode row has left
    assert bench.told(0)[-1] == Tokens((9,), 0.0)
    assert (bench.figures.resident_requests, bench.figures.free_slots) == (2, 0)
    third = bench.turn()
    assert ran(third) == (None, (1,))
    assert bench.told(0)[-1] == Finished(StopReason.STOP_TOKEN)
    assert sum(isinstance(event, Tokens) for event in bench.told(0)) == 1
    assert (bench.figures.resident_requests, bench.figures.free_slots) == (1, 1)


@pytest.mark.contract("EXEC-002", "EXEC-004")
def test_one_prefill_chunk_at_most_between_two_rounds_of_all_that_decode() -> None:
    bench = Bench(lanes=4, chunk_tokens=64)
    bench.submit(0, 30, 100)
    bench.submit(1, 30, 100)
    bench.submit(2, 300, 100)
    bench.submit(3, 100, 100)
    assert [ran(bench.turn()) for _ in range(10)] == [
        (0, ()),
        (1, (0,)),
        (2, (0, 1)),
        (2, (0, 1)),
        (2, (0, 1)),
        (2, (0, 1)),
        (2, (0, 1)),
        (3, (0, 1, 2)),
        (3, (0, 1, 2)),
        (None, (0, 1, 2, 3)),
    ]


@pytest.mark.contract("EXEC-012")
def test_small_requests_pass_a_large_one_only_so_often() -> None:
    bench = Bench(lanes=2, pages=8)
    bench.submit(0, 300, 60)
    bench.submit(1, 300, 1)  # does not fit beside it
    for ticket in range(2, 8):
        bench.submit(ticket, 10, 0)
    for _ in range(90):
        bench.turn()
    admitted = [ticket for ticket, event in bench.notes if isinstance(event, Admitted)]
    assert admitted == [0, 2, 3, 1, 4, 5, 6, 7]  # as many as there are lanes have passed it


@pytest.mark.contract("SCHED-001", "SCHED-003", "SCHED-007", "SCHED-010")
def test_a_younger_request_gives_way_and_is_replayed_in_the_form_that_made_each_token() -> None:
    bench = Bench(lanes=2, pages=4, chunk_tokens=64)
    bench.submit(0, 60, 100)
    bench.submit(1, 100, 100)
    turns = [bench.turn(float(at), token=at) for at in range(260)]
    paused_at = next(at for at, planned in enumerate(turns) if at > 5 and 1 not in ran(planned)[1])
    resumed_at = next(at for at, planned in enumerate(turns) if at > paused_at and ran(planned)[0] == 1)
    assert all(ran(planned) == (None, (0,)) for planned in turns[paused_at + 1 : 100])
    said = [event.tokens[0] for event in bench.told(1) if isinstance(event, Tokens)]
    known = [event.tokens[0] for event in bench.told(1) if isinstance(event, Tokens) and event.at_s < resumed_at]
    first, second = turns[resumed_at].prefill, turns[resumed_at + 1].prefill
    assert first is not None
    assert second is not None
    assert (first.unit.start, second.unit.start, second.unit.sample) == (0, 64, None)  # nothing is chosen again
    assert len(first.unit.pages) * 64 >= 100 + len(known)  # room up to its first new token, from the start
    replayed = turns[resumed_at + 2 : resumed_at + 2 + len(known)]
    rows = [planned.decode.rows[planned.decode.tickets.index(1)] for planned in replayed if planned.decode]
    assert [row.token for row in rows] == known
    assert [row.position for row in rows] == list(range(100, 100 + len(known)))
    assert len(said) == 100
    assert sum(isinstance(event, Admitted) for event in bench.told(1)) == 1
    assert [event.processed_tokens for event in bench.told(1) if isinstance(event, PromptProgress)] == [64, 100]
    assert bench.figures.pauses == 1
    assert bench.figures.replayed_tokens == 100 + len(known) - 1


@pytest.mark.contract("SCHED-001")
def test_every_unit_comes_with_a_slot_and_with_the_pages_that_it_writes() -> None:
    """Prefill, decode and replay alike; the last free page goes to the position that needs it, and no earlier."""
    bench = Bench(lanes=2, pages=4, chunk_tokens=64)
    bench.submit(0, 60, 100)
    bench.submit(1, 100, 100)
    kinds = set()
    for at in range(260):
        planned = bench.turn(float(at), token=at)
        ran_units = [pair for step in (planned.prefill, planned.decode) if step is not None for pair in units(step)]
        for ticket, unit in ran_units:
            assert len(unit.pages) >= pages_for(end_of(unit))
            replays = bench.figures.restores and ticket == 1
            kinds.add((type(unit), bool(replays)))
        held = [page for _, unit in ran_units for page in unit.pages]
        assert len(set(held)) == len(held)
        assert len({unit.slot for _, unit in ran_units}) == len({ticket for ticket, _ in ran_units})
    assert len(kinds) == 4


@pytest.mark.contract("SCHED-005")
def test_paused_requests_come_back_in_the_order_in_which_they_came() -> None:
    bench = Bench(lanes=3, pages=5, chunk_tokens=64)
    for ticket, new in enumerate((200, 100, 100)):
        bench.submit(ticket, 60, new)
    paused: list[int] = []
    replayed: list[int | None] = []
    for _ in range(500):
        planned = bench.turn()
        paused += [job.ticket for job in bench.scheduler._lanes.paused if job.ticket not in paused]
        if planned.prefill is not None and bench.figures.pauses:
            replayed.append(planned.prefill.ticket)
    assert paused == [2, 1]
    assert replayed == [1, 2]
    assert not bench.scheduler.has_work


@pytest.mark.contract("SCHED-004")
def test_a_paused_request_does_not_keep_out_a_fresh_one_that_fits_nor_starves_behind_such() -> None:
    bench = Bench(lanes=2, pages=4, chunk_tokens=64)
    bench.submit(0, 60, 100)
    bench.submit(1, 150, 40)
    while not bench.figures.paused_requests:
        bench.turn()
    ticket = 2
    while bench.scheduler.has_work and ticket < 60:
        bench.submit(ticket, 20, 30)
        ticket += 1
        for _ in range(10):
            bench.turn()
    order = [other for other, event in bench.notes if isinstance(event, Finished)]
    assert 2 in order[:2]
    assert order.index(1) < 12
    assert bench.told(1)[-1] == Finished(StopReason.OUTPUT_LIMIT)


@pytest.mark.contract("KV-014")
def test_what_can_never_fit_is_told_so_and_waits_for_nothing() -> None:
    bench = Bench(lanes=2, pages=3)
    bench.submit(0, 200, 1)
    assert isinstance(failed := bench.told(0)[0], Failed)
    assert isinstance(failed.error, CapacityExceeded)
    assert not bench.scheduler.has_work


@pytest.mark.contract("KV-014")
@pytest.mark.parametrize(("length", "new", "said"), [(190, 50, 3), (192, 50, 1), (190, 3, 3), (190, 2, 2)])
def test_a_reply_ends_where_the_whole_pool_ends(length: int, new: int, said: int) -> None:
    bench = Bench(lanes=2, pages=3)
    bench.submit(0, length, new)
    for _ in range(20):
        bench.turn()
    # Positions up to 191 have pages, and the last token needs none.
    assert sum(isinstance(event, Tokens) for event in bench.told(0)) == said
    reason = StopReason.OUTPUT_LIMIT if said == new else StopReason.CONTEXT_LIMIT
    assert bench.told(0)[-1] == Finished(reason)
    assert not bench.scheduler.has_work


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5])
def test_a_cancelled_request_is_gone_one_turn_later(turns: int) -> None:
    bench = Bench(chunk_tokens=64)
    bench.submit(0, 150, 50)
    bench.submit(1, 10, 1)
    for _ in range(turns):
        bench.turn()
    heard = len(bench.told(0))
    bench.scheduler.cancel(0)
    bench.scheduler.cancel(0)
    bench.scheduler.cancel(99)
    bench.turn()
    bench.turn()
    assert len(bench.told(0)) == heard
    assert bench.figures.waiting_requests == 0
    assert bench.told(1)[0] == Admitted(0, 0.0)


def test_a_paused_request_can_be_cancelled() -> None:
    bench = Bench(lanes=2, pages=4, chunk_tokens=64)
    bench.submit(0, 60, 100)
    bench.submit(1, 100, 100)
    while not bench.figures.paused_requests:
        bench.turn()
    bench.scheduler.cancel(1)
    assert bench.figures.paused_requests == 0
    while bench.scheduler.has_work:
        bench.turn()
    assert bench.figures.free_pages == 4


@pytest.mark.contract("LIFE-022")
def test_a_failed_unit_fails_its_own_requests() -> None:
    bench = Bench(lanes=3)
    for ticket in range(3):
        bench.submit(ticket, 10, 50)
    for _ in range(4):
        bench.turn()
    step = bench.behind[0]
    assert isinstance(step, DecodeStep)
    result = UnitResult((7, 7, 7), frozenset({1}))
    settled = bench.scheduler.commit(step, result, 0.0)
    assert (settled.live_rows, settled.faulty_rows) == (3, 1)
    assert [type(event) for _, event in settled.notes] == [Tokens, Failed, Tokens]
    planned = bench.scheduler.plan(0.0)
    assert ran(planned) == (None, (0, 2))
    assert planned.decode is not None
    error = UnitFailed("no")
    settled = bench.scheduler.fail(planned.decode, error, 0.0)
    assert settled.notes == ((0, Failed(error)), (2, Failed(error)))
    assert bench.figures.free_pages == 64
    assert not bench.scheduler.has_work


def test_pacing_holds_back_what_is_chosen_and_nobody_else() -> None:
    bench = Bench(lanes=2)
    bench.submit(0, 150, 3, pacing=Pacing(first_s=10.0, each_s=2.0))
    bench.submit(1, 10, 50)
    assert ran(bench.turn(0.0)) == (0, ())
    held = bench.turn(1.0)
    assert (ran(held), held.wake_s) == ((1, ()), 11.0)
    assert ran(bench.turn(10.9)) == (None, (1,))
    assert ran(bench.turn(11.0)) == (0, (1,))
    assert ran(bench.turn(12.0)) == (None, (1,))
    paced = bench.turn(13.0)
    assert ran(paced) == (None, (0, 1))
    assert paced.wake_s is None
    assert bench.turn(14.5).wake_s == 15.0


def test_tickets_come_in_order() -> None:
    bench = Bench()
    bench.submit(3, 10, 1)
    with pytest.raises(LedgerError, match="out of order"):
        bench.submit(2, 10, 1)
    with pytest.raises(LedgerError, match="out of order"):
        bench.submit(3, 10, 1)


def test_lanes_need_slots() -> None:
    with pytest.raises(ValueError, match="2 lanes need as many slots, the device has 1"):
        Scheduler(limits(lanes=2), total_pages=4, total_slots=1)


def test_the_check_sees_memory_without_a_lane() -> None:
    bench = Bench()
    bench.submit(0, 10, 5)
    bench.turn()
    bench.scheduler._lanes.pages.reserve(77, 1)
    with pytest.raises(LedgerError, match="has no lane"):
        bench.scheduler.check()
    bench.scheduler._lanes.pages.release(77)
    bench.scheduler._jobs[5] = attrs.evolve(bench.scheduler._jobs[0])
    with pytest.raises(LedgerError, match="lost"):
        bench.scheduler.check()
