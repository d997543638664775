"""The thinking budget: when the forced tokens are due, and that nothing but them changes."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.engine.device import SampleRow
from ninfer.engine.scheduler.thinking import ThinkingWatch
from ninfer.engine.types import Finished, Plan, Rescheduled, StopReason, ThinkingBudget, Tokens, Transition
from tests.fakes.device import FakeDevice, choose_by_hash
from tests.fakes.engine import ManualEngine, limits, plan, prompt, undisturbed

CLOSE, BREAK, STOP = 1, 2, 3
FORCED = (500, 501, CLOSE, BREAK)
BUDGET = ThinkingBudget(limit_tokens=4, close_token=CLOSE, confirming_tokens=frozenset({BREAK}), forced_tokens=FORCED)


@pytest.mark.parametrize(
    ("tokens", "due_at"),
    [
        pytest.param([9] * 8, 3, id="the token that reaches the limit is the last"),
        pytest.param([9, CLOSE, BREAK, 9, 9, 9], None, id="closed before"),
        pytest.param(
            [9, 9, 9, CLOSE, BREAK, 9], None, id="closed at the limit", marks=pytest.mark.contract("THINK-005")
        ),
        pytest.param([9, CLOSE, 9, 9, 9], 3, id="a quoted marker closes nothing"),
        pytest.param([9, 9, 9, CLOSE, 9, 9], 4, id="a marker at the limit that turns out to be quoted"),
        pytest.param([9, 9, 9, CLOSE, CLOSE, BREAK, 9], None, id="the second marker closes"),
        pytest.param([9, 9, 9, CLOSE, CLOSE, 9, 9], 5, id="both are quoted"),
        pytest.param([BREAK] * 5, 3, id="a line break alone closes nothing"),
    ],
)
def test_when_the_forced_tokens_are_due(tokens: list[int], due_at: int | None) -> None:
    watch = ThinkingWatch(BUDGET)
    assert [at for at, token in enumerate(tokens) if watch.take(token)] == ([] if due_at is None else [due_at])


@pytest.mark.contract("THINK-011")
@pytest.mark.parametrize(("capacity", "fits"), [(1, True), (4, True), (5, False), (8, False), (9, True), (100, True)])
def test_the_whole_text_and_one_token_must_fit(capacity: int, fits: bool) -> None:
    assert BUDGET.fits(capacity) is fits


def test_forced_tokens_never_end_the_reply() -> None:
    with pytest.raises(ValueError, match="hold one that ends the reply"):
        plan(9, 501, thinking=BUDGET)
    for wrong in ({"limit_tokens": 0}, {"forced_tokens": ()}):
        with pytest.raises(ValueError, match="must be"):
            attrs.evolve(BUDGET, **wrong)


def engine(choose: object = choose_by_hash, *, lanes: int = 1, pages: int = 64) -> ManualEngine:
    device = FakeDevice(total_pages=pages, total_slots=lanes, choose=choose)  # type: ignore[arg-type]
    return ManualEngine(device, limits(lanes=lanes, pages=pages))


def saying(*tokens: int) -> object:
    """Chooses these tokens behind a prompt of 20, then 9 for ever."""
    return lambda state, row: tokens[row.position - 20] if row.position - 20 < len(tokens) else 9


@pytest.mark.contract("THINK-004", "THINK-005", "THINK-006")
@pytest.mark.parametrize(
    ("chosen", "new", "heard", "reason"),
    [
        pytest.param((5, 6, 7, 8), 12, (5, 6, 7, 8, *FORCED, 9, 9, 9, 9), StopReason.OUTPUT_LIMIT, id="forced"),
        pytest.param((5, 6, 7, STOP), 12, (5, 6, 7, STOP), StopReason.STOP_TOKEN, id="a stop at the limit"),
        pytest.param((5, 6, 7, CLOSE, BREAK), 7, (5, 6, 7, CLOSE, BREAK, 9, 9), StopReason.OUTPUT_LIMIT, id="closed"),
        pytest.param((5, 6, 7, 8), 4, (5, 6, 7, 8), StopReason.OUTPUT_LIMIT, id="the output limit at the limit"),
        pytest.param((5, 6, 7, 8), 8, (5, 6, 7, 8, *FORCED), StopReason.OUTPUT_LIMIT, id="just as much"),
        pytest.param((5, 6, 7, 8), 7, (5, 6, 7, 8, 9, 9, 9), StopReason.OUTPUT_LIMIT, id="never a part of it"),
    ],
)
def test_what_is_committed(chosen: tuple[int, ...], new: int, heard: tuple[int, ...], reason: StopReason) -> None:
    made = engine(saying(*chosen))
    ticket = made.submit(prompt(20), plan(new, STOP, thinking=BUDGET))
    made.step()
    made.finish()
    assert made.tokens(ticket) == heard
    assert made.last(ticket) == Finished(reason)


@pytest.mark.contract("THINK-006", "THINK-010")
def test_the_text_is_committed_in_one_piece_the_moment_it_is_due() -> None:
    made = engine(saying(5, 6, 7, 8))
    ticket = made.submit(prompt(20), plan(30, thinking=BUDGET))
    made.run_until(lambda: bool(made.tokens(ticket)) and made.tokens(ticket)[-1] == BREAK)
    assert [event.tokens for event in made.events[ticket] if isinstance(event, Tokens) and event.forced] == [FORCED]
    assert made.tokens(ticket) == (5, 6, 7, 8, *FORCED)  # the round in flight chose a ninth token: it is dropped
    made.finish()
    assert len(made.tokens(ticket)) == 30
    figures = made.worker.figures
    assert (figures.generated_tokens, figures.forced_tokens, figures.replayed_tokens) == (30, 4, 0)


def test_the_context_limit_counts_the_forced_tokens() -> None:
    made = engine(saying(5, 6, 7, 8))
    ticket = made.submit(prompt(4087), plan(50, thinking=BUDGET))
    made.step()
    made.finish()
    assert len(made.tokens(ticket)) == 9
    assert made.tokens(ticket)[4:8] == FORCED
    assert made.last(ticket) == Finished(StopReason.CONTEXT_LIMIT)


def test_a_cancel_at_the_limit_leaves_nothing() -> None:
    for steps in range(4, 12):
        made = engine(saying(5, 6, 7, 8))
        ticket = made.submit(prompt(20), plan(30, thinking=BUDGET))
        made.step(steps)
        made.worker.cancel(ticket)
        made.step(2)
        heard = made.tokens(ticket)
        assert heard == (5, 6, 7, 8, *FORCED, 9, 9, 9)[: len(heard)]
        assert len(heard) <= 4 or len(heard) >= 8
        assert made.worker.figures.free_pages == 64


def few_tokens(state: int, row: SampleRow) -> int:
    """One of eight tokens: close markers, line breaks and stops come often."""
    return choose_by_hash(state, row) % 8


budgets = st.builds(
    ThinkingBudget,
    limit_tokens=st.integers(1, 90),
    close_token=st.just(CLOSE),
    confirming_tokens=st.sampled_from([frozenset({BREAK}), frozenset({4, 5, 6})]),
    forced_tokens=st.lists(st.integers(500, 600), min_size=1, max_size=90).map(tuple),
)


@pytest.mark.contract("THINK-006", "SCHED-010", "SCHED-011")
@given(
    asked=st.lists(
        st.tuples(st.integers(1, 200), st.integers(0, 150), st.none() | budgets, st.booleans()), min_size=1, max_size=6
    ),
    lanes=st.integers(1, 4),
    pages=st.integers(6, 20),
)
def test_neighbours_and_pauses_do_not_show(
    asked: list[tuple[int, int, ThinkingBudget | None, bool]], lanes: int, pages: int
) -> None:
    made = engine(few_tokens, lanes=lanes, pages=pages)
    requests = [
        (prompt(length, salt), plan(new, *([STOP] if stops else []), seed=salt, thinking=budget))
        for salt, (length, new, budget, stops) in enumerate(asked)
    ]
    tickets = []
    for request in requests:
        tickets.append(made.submit(*request))
        made.step(3)
    made.finish()
    for ticket, (tokens, how) in zip(tickets, requests, strict=True):
        assert made.tokens(ticket) == undisturbed(tokens, how, choose=few_tokens)


@pytest.mark.contract("THINK-006", "SCHED-010")
@pytest.mark.parametrize("when", range(1, 40, 3))
def test_a_pause_at_any_moment_of_it(when: int) -> None:
    """An older request takes the memory at every stage: before the limit, while the text is fed, and after it."""
    budget = attrs.evolve(BUDGET, limit_tokens=10, forced_tokens=tuple(range(500, 512)))
    how: Plan = plan(60, seed=1, thinking=budget)
    made = engine(lanes=2, pages=3)
    older = made.submit(prompt(128 - when), plan(when + 20))  # needs a third page for its token number `when`
    younger = made.submit(prompt(20, 1), how)
    made.step()
    made.finish()
    assert made.tokens(older) == undisturbed(prompt(128 - when), plan(when + 20))
    assert made.tokens(younger) == undisturbed(prompt(20, 1), how)
    moves = [event.transition for event in made.events[younger] if isinstance(event, Rescheduled)]
    assert moves[:2] == [Transition.PAUSE_STARTED, Transition.PAUSED]
