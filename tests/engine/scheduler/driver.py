"""Drives a `Scheduler` the way the worker does, over a `FakeDevice`, and checks all that may be seen from outside.

After every turn the books agree, nothing that was published is published again, the oldest admitted request has made
progress within `MOST_TURNS_WITHOUT_A_UNIT`, nobody younger has taken a page that it lacked, a replay has begun with
all the pages that it needs up to its first new unit, and nobody was passed by more than `lanes` younger requests.
Whoever decodes and lacks no page is in every round, so that at most one chunk and one round lie between two tokens.
What is told of pauses is told in order, and names the work that was done.
"""

import attrs

from ninfer.engine.cache import pages_for
from ninfer.engine.device import DecodeRow, Pending, PrefillUnit
from ninfer.engine.scheduler import DecodeStep, Note, PrefillStep, Scheduler
from ninfer.engine.types import (
    Admitted,
    CapacityExceeded,
    EngineEvent,
    EngineLimits,
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
    Work,
)
from tests.fakes.device import FakeDevice, InjectedFault
from tests.fakes.engine import undisturbed

MOST_TURNS_WITHOUT_A_UNIT = 3
"""One turn in which those who give way drain, one in which they have, and the turn that runs the unit."""


MOVES: dict[Transition | None, set[Transition]] = {
    None: {Transition.PAUSE_STARTED},
    Transition.PAUSE_STARTED: {Transition.PAUSED},
    Transition.PAUSED: {Transition.RESTORED},
    Transition.RESTORED: {Transition.REPLAY_COMPLETE, Transition.PAUSE_STARTED},
    Transition.REPLAY_COMPLETE: {Transition.RECOVERY_COMPLETE, Transition.PAUSE_STARTED},
    Transition.RECOVERY_COMPLETE: {Transition.PAUSE_STARTED},
}
"""What may follow each transition."""


class MemoryLost(Exception):
    """The unit that has failed took the device's memory with it."""


NO_WORK = Work(prefilled_tokens=0, generated_tokens=0, replayed_tokens=0)


@attrs.define(eq=False)
class Expected:
    """What the driver knows of one request."""

    prompt: Prompt
    plan: Plan
    admitted: bool = False
    passed: int = 0
    progress: int = 0
    tokens: list[int] = attrs.field(factory=list)
    outcome: EngineEvent | None = None
    cancelled: bool = False
    turns_without_a_unit: int = 0
    frontier: int = 0
    """Positions that have been committed, in any attempt."""
    pages: int = 0
    """Pages of its latest unit."""
    overtaken: bool = False
    """Somebody younger took pages in a turn in which this one, the oldest, did not run."""
    dispatched: int = 0
    """The position after its latest unit in this lane."""
    move: Transition | None = None
    """The latest one."""
    pauses: int = 0
    restored_at: int = -1
    """The turn in which it got its lane back."""
    work: Work = NO_WORK


def units(step: PrefillStep | DecodeStep) -> list[tuple[int, PrefillUnit | DecodeRow]]:
    """Tickets and what runs for them."""
    if isinstance(step, PrefillStep):
        return [(step.ticket, step.unit)]
    return list(zip(step.tickets, step.rows, strict=True))


def end_of(unit: PrefillUnit | DecodeRow) -> int:
    """The position after the unit's last one."""
    return unit.start + len(unit.tokens) if isinstance(unit, PrefillUnit) else unit.position + 1


class Driver:
    """See the module."""

    def __init__(self, limits: EngineLimits, *, pages: int) -> None:
        self.limits = limits
        self.device = FakeDevice(
            total_pages=pages, total_slots=limits.lanes, most_tokens=limits.prefill_chunk_tokens, fault=self._fault
        )
        self.scheduler = Scheduler(limits, total_pages=pages, total_slots=limits.lanes)
        self.requests: dict[int, Expected] = {}
        self.live: dict[int, Expected] = {}
        self.in_flight: list[tuple[PrefillStep | DecodeStep, Pending]] = []
        self.next_fault = InjectedFault()
        self.tickets = 0
        self.turns = 0
        self.lost_at = -1

    def _fault(self, unit: int, kind: str) -> InjectedFault:
        fault, self.next_fault = self.next_fault, InjectedFault()
        return fault

    def submit(self, prompt: Prompt, plan: Plan) -> int:
        ticket, self.tickets = self.tickets, self.tickets + 1
        self.requests[ticket] = self.live[ticket] = Expected(prompt, plan)
        self._hear(self.scheduler.submit(ticket, prompt, plan))
        return ticket

    def cancel(self, ticket: int) -> None:
        self.scheduler.cancel(ticket)
        if ticket in self.live:
            self.live.pop(ticket).cancelled = True

    def turn(self) -> None:
        """One turn of the inner loop."""
        self.turns += 1
        oldest = next((ticket for ticket, request in self.live.items() if request.admitted), None)
        plan = self.scheduler.plan(float(self.turns))
        self._hear(plan.notes)
        behind, self.in_flight = self.in_flight, []
        steps = [step for step in (plan.prefill, plan.decode) if step is not None]
        ran = {ticket: unit for step in steps for ticket, unit in units(step)}
        self._check_order(oldest, ran)
        left_out = self._check_rounds(ran)
        try:
            for step in steps:
                self._run(step)
            for step, pending in behind:
                self._collect(step, pending)
        except MemoryLost:
            self.in_flight, self.lost_at = [], self.turns
            self._hear(self.scheduler.lose(float(self.turns)))
        assert not any(ticket in self.live for ticket in left_out), f"{left_out} are left out of a round"
        self.scheduler.check()
        assert steps or behind or plan.notes or not self.live, "nothing happens and somebody waits"

    def _run(self, step: PrefillStep | DecodeStep) -> None:
        try:
            unit = self.device.prefill(step.unit) if isinstance(step, PrefillStep) else self.device.decode(step.rows)
        except AssertionError as error:
            self._fail(step, error)
        else:
            self.in_flight.append((step, unit))

    def _collect(self, step: PrefillStep | DecodeStep, pending: Pending) -> None:
        try:
            result = pending.read()
        except AssertionError as error:
            self._fail(step, error)
            return
        for ticket, unit in units(step):
            self.requests[ticket].frontier = max(self.requests[ticket].frontier, end_of(unit))
        self._hear(self.scheduler.commit(step, result, float(self.turns)).notes)

    def _fail(self, step: PrefillStep | DecodeStep, error: AssertionError) -> None:
        self._hear(self.scheduler.fail(step, UnitFailed(str(error)), float(self.turns)).notes)
        if self.device.recover():
            raise MemoryLost

    def _check_order(self, oldest: int | None, ran: dict[int, PrefillUnit | DecodeRow]) -> None:
        grown = False
        for ticket, unit in ran.items():
            request = self.requests[ticket]
            if isinstance(unit, PrefillUnit) and unit.start == 0 and request.restored_at >= 0:
                self._check_replay(request, unit)  # its pages were taken when it got its lane back, maybe turns ago
            else:
                grown |= ticket != oldest and len(unit.pages) > request.pages
            request.pages = len(unit.pages)
        if oldest is None or oldest not in self.live:
            return
        request = self.live[oldest]
        if oldest in ran:
            assert not request.overtaken, f"{oldest} lacked pages that somebody younger took"
            request.turns_without_a_unit = 0
        else:
            request.overtaken |= grown
            request.turns_without_a_unit += 1
            assert request.turns_without_a_unit <= MOST_TURNS_WITHOUT_A_UNIT, f"{oldest} starves"

    def _check_rounds(self, ran: dict[int, PrefillUnit | DecodeRow]) -> list[int]:
        """Who could decode and is not in the round, though it lacks no page: they must have ended, unheard so far.

        Whoever lacks one has to wait for an older one, or nobody can have it.
        """
        older_waits = False
        free_pages = self.scheduler.figures(compilations=0, recoveries=0).free_pages
        left_out: list[int] = []
        for ticket, request in self.live.items():
            if ticket in ran:
                request.dispatched = end_of(ran[ticket])
                continue
            in_lane = request.admitted and request.move not in (Transition.PAUSE_STARTED, Transition.PAUSED)
            generated = request.dispatched - len(request.prompt.tokens)
            if in_lane and generated >= 0 and generated + 1 < self._limit(request):
                lacks_page = pages_for(request.dispatched + 1) > request.pages
                if not (lacks_page and (older_waits or not free_pages)):
                    left_out.append(ticket)
            older_waits |= request.admitted
        return left_out

    def _limit(self, request: Expected) -> int:
        return min(request.plan.max_new_tokens, self.limits.request_tokens - len(request.prompt.tokens))

    def _check_move(self, request: Expected, event: Rescheduled) -> None:
        assert event.transition in MOVES[request.move], f"{event.transition} after {request.move}"
        request.pauses += event.transition is Transition.PAUSE_STARTED
        assert event.pause == request.pauses
        for own, before, everybody in zip(
            attrs.astuple(event.own), attrs.astuple(request.work), attrs.astuple(event.everybody), strict=True
        ):
            assert before <= own <= everybody
        assert event.own.generated_tokens == len(request.tokens)
        assert event.own.prefilled_tokens == request.progress
        if event.transition is Transition.RESTORED:
            request.restored_at = self.turns
        elif event.transition is Transition.PAUSE_STARTED:
            assert request.restored_at < self.turns or self.lost_at == self.turns, (
                "it gets its lane back and loses it in one turn"
            )
        request.move, request.work = event.transition, event.own
        if event.transition is Transition.PAUSED:
            request.dispatched = 0
            request.overtaken = (
                False  # it may have lacked nothing then: a device that loses its memory pauses everybody
            )

    def _check_replay(self, request: Expected, unit: PrefillUnit) -> None:
        prompt_tokens = len(request.prompt.tokens)
        if request.frontier >= prompt_tokens:
            first_new_end = request.frontier + 1
        else:
            first_new_end = min(request.frontier + self.limits.prefill_chunk_tokens, prompt_tokens)
        assert len(unit.pages) >= pages_for(first_new_end)

    def drain(self) -> None:
        """Run until everybody has ended; everything is free then."""
        bound = (
            self.turns
            + 50
            + 4
            * sum(
                len(request.prompt.tokens) // 64 + 2 + request.plan.max_new_tokens for request in self.requests.values()
            )
        )
        while self.live or self.in_flight:
            self.turn()
            assert self.turns <= bound, "the requests do not come to an end"
        figures = self.scheduler.figures(compilations=0, recoveries=0)
        assert (figures.free_pages, figures.free_slots) == (figures.total_pages, figures.total_slots)
        assert not self.scheduler.has_work

    def _hear(self, notes: tuple[Note, ...]) -> None:
        for ticket, event in notes:
            request = self.live.get(ticket)
            assert request is not None, f"{ticket} has ended and is told {event}"
            match event:
                case Admitted():
                    assert not request.admitted
                    request.admitted = True
                    self._count_bypass(ticket)
                case PromptProgress(processed_tokens=done):
                    assert request.admitted
                    assert request.progress < done <= len(request.prompt.tokens)
                    request.progress = done
                case Tokens(tokens=tokens):
                    assert request.progress == len(request.prompt.tokens)
                    request.tokens += tokens
                case Rescheduled():
                    self._check_move(request, event)
                case Finished() | Failed():
                    request.outcome = event
                    del self.live[ticket]
                    self._check_outcome(request)

    def _count_bypass(self, ticket: int) -> None:
        for other, request in self.live.items():
            if other < ticket and not request.admitted:
                request.passed += 1
                assert request.passed <= self.limits.lanes, f"{other} was passed too often"

    def _check_outcome(self, request: Expected) -> None:
        whole = undisturbed(
            request.prompt,
            request.plan,
            max_context_tokens=max(self.limits.request_tokens, len(request.prompt.tokens)),
        )
        tokens = tuple(request.tokens)
        assert tokens == whole[: len(tokens)], "a replay has changed the tokens"
        match request.outcome:
            case Finished(reason=reason):
                assert tokens == whole
                if tokens and tokens[-1] in request.plan.stop_tokens:
                    assert reason is StopReason.STOP_TOKEN
                elif len(tokens) == request.plan.max_new_tokens:
                    assert reason is StopReason.OUTPUT_LIMIT
                else:
                    assert reason is StopReason.CONTEXT_LIMIT
                    assert len(request.prompt.tokens) + len(tokens) == self.limits.request_tokens
            case Failed(error=CapacityExceeded()):
                length = len(request.prompt.tokens)
                assert not tokens
                assert pages_for(length) > self.device.total_pages or length > self.limits.max_context_tokens
            case Failed(error=error):
                assert isinstance(error, UnitFailed)
