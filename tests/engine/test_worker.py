"""The device thread's loop, stepped by hand over the fake device: order of calls, drops, cancels, failures."""

import itertools
import logging
import queue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.engine.device import SampleRow
from ninfer.engine.scheduler import Pacing
from ninfer.engine.types import (
    DeviceLost,
    EngineStopped,
    Failed,
    Finished,
    Plan,
    Prompt,
    PromptProgress,
    Rescheduled,
    StopReason,
    Tokens,
    Transition,
    UnitFailed,
)
from ninfer.engine.worker import MOST_RECOVERIES, Close
from tests.fakes.device import FakeDevice, InjectedFault, Kind
from tests.fakes.engine import ManualEngine, limits, plan, prompt, undisturbed

NO_FAULT = InjectedFault()


def engine(*, lanes: int = 1, pages: int = 64, chunk_tokens: int = 128, **device: object) -> ManualEngine:
    fake = FakeDevice(total_pages=pages, total_slots=lanes, most_tokens=chunk_tokens, **device)  # type: ignore[arg-type]
    return ManualEngine(fake, limits(lanes=lanes, pages=pages, chunk_tokens=chunk_tokens))


def nothing_is_owned(made: ManualEngine) -> bool:
    figures = made.worker.figures
    return (figures.free_pages, figures.free_slots) == (figures.total_pages, figures.total_slots) and not made.busy


def test_the_next_round_leaves_before_the_last_one_is_read() -> None:
    made = engine()
    ticket = made.submit(prompt(20), plan(51))
    made.step()
    made.finish()
    order = [(call.action, call.unit) for call in made.device.calls]
    for unit in range(50):  # unit 0 is the prefill, units 1 to 50 are the rounds
        assert order.index(("dispatch", unit + 1)) < order.index(("read", unit))
        if unit < 49:  # and only one step ahead
            assert order.index(("read", unit)) < order.index(("dispatch", unit + 2))
    assert [call.kind for call in made.device.calls if call.action == "dispatch"] == ["prefill"] + ["decode"] * 50
    assert made.tokens(ticket) == undisturbed(prompt(20), plan(51))


@pytest.mark.parametrize("at", [0, 1, 2, 9])
def test_the_round_after_a_stop_is_dropped(at: int) -> None:
    asked = prompt(70)
    stop = undisturbed(asked, plan(at + 1))[-1]
    made = engine(lanes=2)
    ticket = made.submit(asked, plan(50, stop))
    other = made.submit(prompt(30, 1), plan(30))
    made.step()
    made.run_until(lambda: made.ended(ticket))
    assert made.tokens(ticket) == undisturbed(asked, plan(at + 1))
    assert made.last(ticket) == Finished(StopReason.STOP_TOKEN)
    dispatched = [call for call in made.device.calls if call.action == "dispatch" and 0 in call.slots]
    assert len(dispatched) == 1 + at + 1  # the prefill, a round for each token after the first, and the one too many
    made.finish()
    assert made.tokens(other) == undisturbed(prompt(30, 1), plan(30))
    assert nothing_is_owned(made)


@pytest.mark.contract("EXEC-001", "EXEC-002")
@given(
    sizes=st.lists(st.tuples(st.integers(1, 200), st.integers(0, 90)), min_size=1, max_size=8),
    lanes=st.integers(1, 8),
    pages=st.integers(5, 30),
    gaps=st.lists(st.integers(0, 30), min_size=8, max_size=8),
)
def test_neighbours_pauses_and_arrivals_do_not_show(
    sizes: list[tuple[int, int]], lanes: int, pages: int, gaps: list[int]
) -> None:
    made = engine(lanes=lanes, pages=pages)
    asked = [(prompt(length, salt), plan(new, seed=salt)) for salt, (length, new) in enumerate(sizes)]
    tickets = []
    for request, gap in zip(asked, gaps, strict=False):
        tickets.append(made.submit(*request))
        made.step(gap)
    made.step()
    made.finish()
    assert [made.tokens(ticket) for ticket in tickets] == [undisturbed(*request) for request in asked]
    assert nothing_is_owned(made)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 500), st.integers(1, 60)), min_size=2, max_size=8),
    gaps=st.lists(st.integers(0, 12), min_size=8, max_size=8),
)
def test_at_most_one_foreign_chunk_and_one_round_lie_between_two_tokens(
    sizes: list[tuple[int, int]], gaps: list[int]
) -> None:
    """Whatever prefills meanwhile; between two rounds of a lane the device is given one chunk and no other round."""
    made = engine(lanes=4, chunk_tokens=64)
    for salt, ((length, new), gap) in enumerate(zip(sizes, gaps, strict=False)):
        made.submit(prompt(length, salt), plan(new))
        made.step(gap)
    made.step()
    made.finish()
    since: dict[int, list[Kind]] = {}  # slot of a lane that decodes -> units of others since its latest row
    for call in made.device.calls:
        if call.action == "dispatch":
            for slot, units in since.items():
                if slot not in call.slots:
                    units.append(call.kind)
            for slot in call.slots:
                if call.kind == "prefill":
                    since.pop(slot, None)  # another request has the lane now
                else:
                    assert since.get(slot, []) in ([], ["prefill"])
                    since[slot] = []


def test_the_same_history_twice_is_the_same_history() -> None:
    def live() -> tuple[object, object]:
        made = engine(lanes=3, pages=7)
        for salt in range(6):
            made.submit(prompt(60 + 20 * salt, salt), plan(70, seed=salt))
            made.step(5)
        made.finish()
        return made.device.calls, made.events

    assert live() == live()


@pytest.mark.parametrize(("steps", "state"), [(0, "unheard"), (1, "prefilling"), (2, "prefilling"), (6, "decoding")])
def test_a_cancel_frees_everything_and_the_next_request_is_taken_within_one_step(steps: int, state: str) -> None:
    made = engine()
    made.step()
    ticket = made.submit(prompt(300), plan(50))
    waiting = made.submit(prompt(10, 1), plan(1))
    made.step(steps)
    heard = len(made.events[ticket])
    assert (state == "decoding") == bool(made.tokens(ticket))
    made.worker.cancel(ticket)
    made.step()
    assert len(made.events[ticket]) == heard
    made.step()
    assert made.events[waiting], "the lane that was freed is not taken within one step"
    made.finish()
    assert nothing_is_owned(made)
    assert made.tokens(waiting) == undisturbed(prompt(10, 1), plan(1))


def test_a_request_cancelled_while_it_waits_is_never_run() -> None:
    made = engine()
    first = made.submit(prompt(10), plan(20))
    second = made.submit(prompt(10, 1), plan(20))
    made.step(3)
    made.worker.cancel(second)
    made.finish()
    assert made.events[second] == []
    assert made.tokens(first) == undisturbed(prompt(10), plan(20))


def raising(
    error: Exception, *, where: str, times: int = 1, kind: Kind = "decode", skip: int = 0, loses: bool = False
) -> object:
    """A fault in the first `times` units of `kind` after `skip` others."""
    count = itertools.count()

    def fault(unit: int, of: Kind) -> InjectedFault:
        if of != kind or not skip <= next(count) < skip + times:
            return NO_FAULT
        if where == "dispatch":
            return InjectedFault(on_dispatch=error, loses_memory=loses)
        return InjectedFault(on_read=error, loses_memory=loses)

    return fault


class JaxRuntimeError(RuntimeError):
    """Stands in for the real one, which the worker knows by its name."""


OUT_OF_MEMORY = JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes")


@pytest.mark.contract("LIFE-022", "LIFE-023")
@pytest.mark.parametrize("where", ["dispatch", "read"])
@pytest.mark.parametrize(
    ("error", "out_of_memory", "line"),
    [
        (
            OUT_OF_MEMORY,
            True,
            "worker out of memory: RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes - recovering",
        ),
        (MemoryError("5 bytes"), True, "worker out of memory: 5 bytes - recovering"),
        (AssertionError("two rows differ"), False, "worker recovering from a failed request: two rows differ"),
    ],
)
def test_a_failed_unit_ends_its_own_requests_and_the_engine_goes_on(
    where: str, error: Exception, out_of_memory: bool, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = engine(lanes=2, chunk_tokens=64, fault=raising(error, where=where, kind="prefill"))
    failing = made.submit(prompt(200), plan(5))
    waiting = made.submit(prompt(20, 1), plan(5))
    made.step()
    made.finish()
    assert isinstance(failed := made.last(failing), Failed)
    assert isinstance(failed.error, UnitFailed)
    assert failed.error.out_of_memory is out_of_memory
    assert made.tokens(waiting) == undisturbed(prompt(20, 1), plan(5))
    assert [record.message for record in caplog.records] == [line]
    assert made.worker.figures.recoveries == 1
    assert nothing_is_owned(made)


@pytest.mark.contract("LIFE-022", "EXEC-002")
def test_a_failed_round_ends_all_of_its_rows_and_nobody_else() -> None:
    made = engine(lanes=2, fault=raising(AssertionError("no"), where="read"))
    tickets = [made.submit(prompt(20, salt), plan(9)) for salt in range(3)]
    made.step()
    made.finish()
    outcomes = [made.last(ticket) for ticket in tickets]
    assert [type(outcome) for outcome in outcomes] == [Failed, Finished, Finished]
    assert [made.tokens(ticket) for ticket in tickets[1:]] == [
        undisturbed(prompt(20, salt), plan(9)) for salt in range(1, 3)
    ]


def test_rows_that_are_not_finite_fail_alone() -> None:
    def fault(unit: int, kind: Kind) -> InjectedFault:
        return InjectedFault(faulty_rows=frozenset({0})) if unit == 4 else NO_FAULT

    made = engine(lanes=2, fault=fault)
    tickets = [made.submit(prompt(20, salt), plan(9)) for salt in range(2)]
    made.step()
    made.finish()
    assert isinstance(made.last(tickets[0]), Failed)
    assert made.tokens(tickets[1]) == undisturbed(prompt(20, 1), plan(9))


@pytest.mark.contract("LIFE-022", "SCHED-010")
@pytest.mark.parametrize("where", ["dispatch", "read"])
@pytest.mark.parametrize("kind", ["prefill", "decode"])
@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_a_unit_that_takes_the_memory_with_it_ends_nobody_else(where: str, kind: Kind, number: int) -> None:
    """Everybody but the failed unit's own requests is replayed, and nobody hears anything twice."""
    count = iter(range(1000))

    def fault(unit: int, of: Kind) -> InjectedFault:
        if of != kind or next(count) != number:
            return NO_FAULT
        error = MemoryError("5 bytes")
        at_dispatch = where == "dispatch"
        return InjectedFault(
            on_dispatch=error if at_dispatch else None, on_read=None if at_dispatch else error, loses_memory=True
        )

    made = engine(lanes=3, chunk_tokens=64, fault=fault)
    tickets = [made.submit(prompt(20 + 60 * salt, salt), plan(12, seed=salt)) for salt in range(5)]
    made.step()
    made.finish()
    whole = [undisturbed(prompt(20 + 60 * salt, salt), plan(12, seed=salt)) for salt in range(5)]
    failed = [isinstance(made.last(ticket), Failed) for ticket in tickets]
    assert 1 <= sum(failed) <= (1 if kind == "prefill" else 3)
    for ticket, has_failed, tokens in zip(tickets, failed, whole, strict=True):
        heard = made.tokens(ticket)
        assert heard == (tokens[: len(heard)] if has_failed else tokens)
        progress = [event.processed_tokens for event in made.events[ticket] if isinstance(event, PromptProgress)]
        assert progress == sorted(set(progress))
    figures = made.worker.figures
    assert (figures.recoveries, figures.losses) == (1, 1)
    assert nothing_is_owned(made)


def test_what_is_told_of_a_replay_after_a_loss() -> None:
    fault = raising(MemoryError("5 bytes"), where="read", kind="prefill", loses=True, skip=1)
    made = engine(lanes=2, fault=fault)
    ticket = made.submit(prompt(100), plan(30))
    made.step(8)
    made.submit(prompt(10, 1), plan(5))
    made.finish()
    moves = [event for event in made.events[ticket] if isinstance(event, Rescheduled)]
    assert [event.transition for event in moves] == list(Transition)
    assert {event.pause for event in moves} == {1}
    assert [event.own.replayed_tokens for event in moves] == [0, 0, 0, *[moves[3].own.replayed_tokens] * 2]
    assert 100 < moves[3].own.replayed_tokens < 110
    assert made.worker.figures.restores == 1
    assert made.worker.figures.pauses == 0


def test_the_ninth_loss_in_a_row_stops_the_engine() -> None:
    fault = raising(MemoryError("5 bytes"), where="read", kind="prefill", loses=True, times=100)
    made = engine(fault=fault)
    for salt in range(12):
        made.submit(prompt(20, salt), plan(0))
    with pytest.raises(EngineStopped, match="9 units in a row have failed"):
        made.run_until(lambda: False, most_steps=100)
    assert made.device.losses == 8


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (MemoryError("5 bytes"), EngineStopped, "the device's memory could not be made again: 5 bytes"),
        (RuntimeError("JaxRuntimeError"), EngineStopped, "the worker crashed: JaxRuntimeError"),
        (DeviceLost("gone"), DeviceLost, "gone"),
    ],
)
def test_a_device_that_does_not_recover_ends_the_engine(
    error: Exception, kind: type[EngineStopped], message: str
) -> None:
    fault = raising(MemoryError("1 byte"), where="read", loses=True)
    made = engine(fault=fault, recover_error=error)
    made.submit(prompt(20), plan(9))
    with pytest.raises(EngineStopped) as stopped:
        made.worker.run()
    assert type(stopped.value) is kind
    assert str(stopped.value) == message


def test_a_loss_that_leaves_only_waiting_requests_is_no_standstill() -> None:
    fault = raising(MemoryError("5 bytes"), where="read", kind="prefill", loses=True)
    made = engine(fault=fault)
    first = made.submit(prompt(20), plan(9))
    made.step()
    second = made.submit(prompt(20, 1), plan(9))
    made.worker.cancel(first)
    made.step()
    made.finish()
    assert made.tokens(second) == undisturbed(prompt(20, 1), plan(9))
    assert made.worker.figures.recoveries == 0


def faults_but(successes: set[int]) -> object:
    """Every prefill fails, but for those with these numbers."""
    count = iter(range(10_000))

    def fault(unit: int, kind: Kind) -> InjectedFault:
        return NO_FAULT if next(count) in successes else InjectedFault(on_read=AssertionError("no"))

    return fault


@pytest.mark.contract("LIFE-024", "D14")
def test_the_ninth_failure_in_a_row_stops_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    made = engine(fault=faults_but(set()))
    tickets = [made.submit(prompt(20, salt), plan(0)) for salt in range(12)]
    with pytest.raises(EngineStopped, match="9 units in a row have failed"):
        made.run_until(lambda: False, most_steps=100)
    assert [made.ended(ticket) for ticket in tickets[:MOST_RECOVERIES]] == [True] * MOST_RECOVERIES
    assert len(caplog.records) == 9
    assert not made.ended(tickets[-1])  # told by the engine, with the reason


@pytest.mark.contract("LIFE-024", "D14")
def test_a_success_resets_the_count() -> None:
    made = engine(fault=faults_but({8, 17}))
    tickets = [made.submit(prompt(20, salt), plan(0)) for salt in range(26)]
    made.step()
    made.finish()
    outcomes = [isinstance(made.last(ticket), Finished) for ticket in tickets]
    assert outcomes == [at in {8, 17} for at in range(26)]
    assert made.worker.figures.recoveries == 24


def test_what_runs_ahead_of_a_failure_is_no_success() -> None:
    """The round after a failed one is in flight already; its result is nobody's and must not reset the count."""
    failing = InjectedFault(on_read=AssertionError("no"))
    rounds = iter(range(1000))

    def fault(unit: int, kind: Kind) -> InjectedFault:
        return failing if kind == "decode" and next(rounds) % 2 == 0 else NO_FAULT

    made = engine(fault=fault)
    ticket = made.submit(prompt(20), plan(9))
    made.step()
    made.finish()
    assert isinstance(made.last(ticket), Failed)
    assert made.worker.figures.recoveries == 1
    assert made.worker._failures_in_a_row == 1


@pytest.mark.contract("LIFE-026")
@pytest.mark.parametrize("where", ["dispatch", "read"])
@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (JaxRuntimeError("INTERNAL: illegal address"), DeviceLost, "the device failed: INTERNAL: illegal address"),
        (DeviceLost("gone"), DeviceLost, "gone"),
        (KeyError("slot"), EngineStopped, "the worker crashed: 'slot'"),
    ],
)
def test_any_other_exception_ends_the_engine(
    where: str, error: Exception, kind: type[EngineStopped], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = engine(fault=raising(error, where=where))
    made.submit(prompt(20), plan(9))
    with pytest.raises(EngineStopped) as stopped:
        made.worker.run()
    assert type(stopped.value) is kind
    assert str(stopped.value) == message
    assert [record.message for record in caplog.records] == [f"worker crash: {error}"]


class OneClose(queue.SimpleQueue):  # type: ignore[type-arg]
    """Looks empty, and holds the command to close."""

    def empty(self) -> bool:
        return True

    def get(self, block: bool = True, timeout: float | None = None) -> object:
        return Close()


def test_damaged_books_end_the_engine_when_it_is_idle(caplog: pytest.LogCaptureFixture) -> None:
    made = engine()
    made.worker._ready()._lanes.pages._free.pop()
    commands = OneClose()  # so that a check that finds nothing ends the test
    made.worker._commands = commands  # type: ignore[assignment]
    with pytest.raises(EngineStopped, match="a page is lost"):
        made.worker.run()
    assert caplog.records[0].message.startswith("worker crash: ")


def test_a_close_ends_the_loop_whatever_is_in_flight() -> None:
    made = engine()
    made.submit(prompt(300), plan(50))
    made.step(2)
    made.worker.close()
    assert not made.worker.step()
    made.worker.run()


def test_nothing_runs_before_the_device_is_ready() -> None:
    made = engine()
    fresh = type(made.worker)(device=FakeDevice(), limits=limits(), publish=lambda notes: None, clock=made.clock)
    for use in (fresh.wait, fresh.step, lambda: fresh.figures):
        with pytest.raises(EngineStopped, match="not ready"):
            use()


def test_a_paced_request_is_waited_for_no_longer_than_it_takes() -> None:
    def direct(asked: Prompt, how: Plan) -> tuple[Plan, Pacing]:
        return how, Pacing(first_s=5.0)

    made = ManualEngine(FakeDevice(), limits(), direct=direct)
    waited: list[float | None] = []

    class Commands(queue.SimpleQueue):  # type: ignore[type-arg]
        def get(self, block: bool = True, timeout: float | None = None) -> object:
            waited.append(timeout)
            raise queue.Empty

    ticket = made.submit(prompt(10), plan(2))
    made.step(2)
    made.clock.now_s = 1.5
    made.worker._commands = Commands()
    made.worker.wait()
    assert waited == [3.5]
    assert not made.tokens(ticket)
    made.clock.now_s = 5.0
    made.worker._commands = queue.SimpleQueue()
    made.worker.wait()
    made.finish()
    assert made.tokens(ticket) == undisturbed(prompt(10), plan(2))


def test_tokens_are_told_in_the_step_that_reads_them() -> None:
    made = engine()
    ticket = made.submit(prompt(10), plan(5))
    made.step(2)
    assert [type(event) for event in made.events[ticket]][-1] is Tokens
    assert made.worker.figures.generated_tokens == 1


def test_the_fakes_own_choice_depends_on_all_tokens() -> None:
    row = SampleRow(sampling=plan(1).sampling, position=3)
    assert len({FakeDevice().choose(state, row) for state in range(50)}) > 30


@pytest.fixture(autouse=True)
def warnings_and_worse(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
