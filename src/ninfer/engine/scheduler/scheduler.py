"""The scheduler: who gets a lane, which unit runs next, who gives way when memory is short.

It decides and keeps the books; it runs nothing. `plan` names the units of one turn and reserves their pages, `commit`
and `fail` take their results back, `cancel` may come at any moment. A turn that has been planned is taken as
dispatched, so the next one is planned on top of it before its result is known. Knows no device, no clock, no text.

Memory goes by age. A unit that lacks pages takes them from the youngest younger request, which is paused: it gives
everything back once nothing of it is in flight, keeps its tokens, and is replayed later (D39). Whoever lacks pages
keeps everybody younger from taking new ones meanwhile. A device that has lost its memory makes everybody be replayed.

Tokens that a thinking budget forces are committed and published at once, and fed afterwards as a replay feeds its
tokens: nothing samples them, and the round in flight that chose one in their place is dropped.

A request ends where the context or the whole pool ends, whichever comes first, so none is admitted that waits for ever.

Invariants: the oldest admitted request is never paused and always progresses; at most `lanes` younger requests are
admitted past a waiting one that does not fit; a lane's pages and slot are free only when nothing in flight uses them.
"""

import attrs

from ninfer.engine.cache import LedgerError, pages_for
from ninfer.engine.device import DecodeRow, PrefillUnit, SampleRow, UnitResult
from ninfer.engine.scheduler.job import UNPACED, Job, Leaving, Pacing, Phase
from ninfer.engine.scheduler.lanes import Lanes
from ninfer.engine.scheduler.plan import DecodeStep, Note, PrefillStep, Settled, StepPlan
from ninfer.engine.types import (
    PAGE_TOKENS,
    Admitted,
    CapacityExceeded,
    EngineError,
    EngineEvent,
    EngineFigures,
    EngineLimits,
    Failed,
    Finished,
    Plan,
    Prompt,
    PromptProgress,
    Rescheduled,
    Tokens,
    Transition,
    UnitFailed,
    Work,
)


@attrs.define
class _Turn:
    """A plan in the making."""

    now_s: float
    prefill: PrefillStep | None = None
    tickets: list[int] = attrs.field(factory=list)
    rows: list[DecodeRow] = attrs.field(factory=list)
    notes: list[Note] = attrs.field(factory=list)
    wake_s: float | None = None
    short: bool = False
    """Someone lacks pages: nobody younger takes any in this turn."""


@attrs.define
class _Counters:
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    forced_tokens: int = 0
    replayed_tokens: int = 0
    decode_rounds: int = 0
    prefill_units: int = 0

    @property
    def work(self) -> Work:
        """What has been run for everybody."""
        return Work(
            prefilled_tokens=self.prefilled_tokens,
            generated_tokens=self.generated_tokens,
            replayed_tokens=self.replayed_tokens,
        )


class Scheduler:
    """All requests of one engine, and the books of its memory."""

    def __init__(self, limits: EngineLimits, *, total_pages: int, total_slots: int) -> None:
        if total_slots < limits.lanes:
            raise ValueError(f"{limits.lanes} lanes need as many slots, the device has {total_slots}")
        self._limits = attrs.evolve(limits, kv_capacity_tokens=total_pages * PAGE_TOKENS)
        self._lanes = Lanes(lanes=limits.lanes, total_pages=total_pages)
        self._jobs: dict[int, Job] = {}  # ticket -> every request that has not ended
        self._waiting: list[Job] = []  # those that never had a lane, in the order of arrival
        self._counters = _Counters()

    @property
    def has_work(self) -> bool:
        """Whether any request has not ended."""
        return bool(self._jobs)

    def submit(self, ticket: int, prompt: Prompt, plan: Plan, pacing: Pacing = UNPACED) -> tuple[Note, ...]:
        """Queue a request. Tickets grow with each one. Returns its failure if it can never fit."""
        if ticket in self._jobs or (self._waiting and ticket < self._waiting[-1].ticket):
            raise LedgerError(f"ticket {ticket} is out of order")
        room_tokens = self._limits.request_tokens - len(prompt.tokens)
        if room_tokens < 0 or pages_for(len(prompt.tokens)) > self._lanes.pages.total_pages:
            return ((ticket, Failed(CapacityExceeded(f"a prompt of {len(prompt.tokens)} tokens can never fit"))),)
        job = Job(
            ticket=ticket,
            prompt=prompt.tokens,
            plan=plan,
            limit_tokens=min(plan.max_new_tokens, room_tokens),
            pacing=pacing,
        )
        self._jobs[ticket] = job
        self._waiting.append(job)
        return ()

    def cancel(self, ticket: int) -> None:
        """Drop a request, wherever it is; one that has ended already is fine. Nothing is told about it any more."""
        job = self._jobs.get(ticket)
        if job is None:
            return
        if job.admitted:
            job.leaving, job.outcome = Leaving.ENDED, None
            self._vacate(job, [], 0.0)
        else:
            (self._waiting if job in self._waiting else self._lanes.paused).remove(job)
            del self._jobs[ticket]

    def plan(self, now_s: float) -> StepPlan:
        """The units of the next turn. Their pages are reserved; they count as dispatched from now on."""
        turn = _Turn(now_s)
        self._resume(turn)
        for job in tuple(self._lanes.resident):
            self._grant(job, turn)
        for job in self._admit(turn):
            self._grant(job, turn)
        self._tell_moves(turn.notes, now_s)
        decode = DecodeStep(tuple(turn.tickets), tuple(turn.rows)) if turn.rows else None
        return StepPlan(prefill=turn.prefill, decode=decode, notes=tuple(turn.notes), wake_s=turn.wake_s)

    def commit(self, step: PrefillStep | DecodeStep, result: UnitResult, now_s: float) -> Settled:
        """Take the result of a unit. Rows whose request has ended meanwhile are dropped."""
        notes: list[Note] = []
        live = faulty = 0
        for row, ticket in enumerate(_tickets(step)):
            job = self._jobs[ticket]
            job.in_flight -= 1
            if job.leaving is not Leaving.ENDED:
                live += 1
                if row in result.faulty_rows:
                    faulty += 1
                    self._end(job, Failed(UnitFailed("the logits were not finite")))
                elif isinstance(step, PrefillStep):
                    self._commit_prefill(job, step.unit, result, now_s, notes)
                else:
                    self._commit_row(job, step.rows[row], result.tokens[row], now_s, notes)
            self._vacate(job, notes, now_s)
        if isinstance(step, PrefillStep):
            self._counters.prefill_units += 1
        else:
            self._counters.decode_rounds += 1
        return Settled(notes=tuple(notes), live_rows=live, faulty_rows=faulty)

    def fail(self, step: PrefillStep | DecodeStep, error: EngineError, now_s: float) -> Settled:
        """A unit came to nothing: its requests end with `error` and give back what they own."""
        notes: list[Note] = []
        live = 0
        for ticket in _tickets(step):
            job = self._jobs[ticket]
            job.in_flight -= 1
            if job.leaving is not Leaving.ENDED:
                live += 1
                self._end(job, Failed(error))
            self._vacate(job, notes, now_s)
        return Settled(notes=tuple(notes), live_rows=live, faulty_rows=live)

    def lose(self, now_s: float) -> tuple[Note, ...]:
        """The device holds nothing any more: no unit in flight has a result, and every resident is to be replayed.

        What was planned and not dispatched counts as in flight; nobody may hand any of it back afterwards.
        """
        notes: list[Note] = []
        for job in tuple(self._lanes.resident):
            job.in_flight = 0
            if job.leaving is None:
                self._lanes.put_out(job)
            self._vacate(job, notes, now_s)
        return tuple(notes)

    def figures(self, *, compilations: int, recoveries: int, losses: int = 0) -> EngineFigures:
        """The gauges and counters now; the worker adds what only it knows."""
        return EngineFigures(
            free_pages=self._lanes.pages.free_pages,
            total_pages=self._lanes.pages.total_pages,
            free_slots=self._lanes.slots.free_slots,
            total_slots=self._lanes.slots.total_slots,
            waiting_requests=len(self._waiting),
            resident_requests=len(self._lanes.resident),
            prefilling_requests=sum(job.prefilling for job in self._lanes.resident),
            replaying_requests=sum(job.phase is Phase.REPLAYING for job in self._lanes.resident),
            paused_requests=len(self._lanes.paused),
            prefilled_tokens=self._counters.prefilled_tokens,
            generated_tokens=self._counters.generated_tokens,
            replayed_tokens=self._counters.replayed_tokens,
            decode_rounds=self._counters.decode_rounds,
            prefill_units=self._counters.prefill_units,
            forced_tokens=self._counters.forced_tokens,
            pauses=self._lanes.pauses,
            restores=self._lanes.restores,
            compilations=compilations,
            recoveries=recoveries,
            losses=losses,
        )

    def check(self) -> None:
        """Compare the books with each other and with the lanes.

        Raises:
            LedgerError: something has leaked or is held twice.
        """
        self._lanes.check()
        if len(self._jobs) != len(self._waiting) + len(self._lanes.resident) + len(self._lanes.paused):
            raise LedgerError("a request is lost")

    # Lanes

    def _resume(self, turn: _Turn) -> None:
        """Give paused requests their lane back, in the order of arrival, with room for all that they had and one unit.

        The oldest request of all may take that room from younger ones. Without this right, fresh requests that
        happen to fit could keep it out for ever.
        """
        lanes = self._lanes
        while lanes.paused:
            job = lanes.paused[0]
            need = pages_for(self._rebuilt_end(job))
            if lanes.outranked(job):
                if not lanes.slots.free_slots or lanes.unpromised_pages < need:
                    return
            elif not lanes.make_room(job, need, slots=1):
                turn.short = True
                return
            lanes.restore(job, pages=need)
            self._rebuild(job)

    def _admit(self, turn: _Turn) -> list[Job]:
        """Give free lanes to waiting requests: the head first, at most `lanes` younger ones past each that waits."""
        admitted: list[Job] = []
        reach = self._limits.lanes + 1
        index = 0
        while self._lanes.slots.free_slots and not turn.short and index < min(len(self._waiting), reach):
            older = self._waiting[:index]
            if any(job.passed >= self._limits.lanes for job in older):
                break
            job = self._waiting[index]
            if pages_for(len(job.prompt)) > self._lanes.unpromised_pages:
                index += 1
                continue
            del self._waiting[index]
            for blocked in older:
                blocked.passed += 1
            self._lanes.enter(job)
            admitted.append(job)
            turn.notes.append((job.ticket, Admitted(cached_tokens=0, at_s=turn.now_s)))
        return admitted

    def _rebuilt_end(self, job: Job) -> int:
        """Where the first new unit after a replay ends."""
        if job.rebuild_to >= len(job.prompt):
            return job.rebuild_to + 1
        return min(job.rebuild_to + self._limits.prefill_chunk_tokens, len(job.prompt))

    # Units

    def _grant(self, job: Job, turn: _Turn) -> None:
        """Put the job's next unit into the turn, if it has one, may run it now, and has the memory."""
        if not (job.admitted and job.wants_unit) or (job.prefilling and turn.prefill is not None):
            return
        end = job.chunk_end(self._limits.prefill_chunk_tokens) if job.prefilling else job.next_position + 1
        chooses = job.chooses(end)
        if (chooses and _held_back(job, turn)) or not self._acquire(job, end, turn):
            return
        if job.slot is None:
            raise LedgerError(f"{job.ticket} runs without a slot")
        sample = SampleRow(sampling=job.plan.sampling, position=end)
        if job.prefilling:
            unit = PrefillUnit(
                slot=job.slot,
                pages=job.pages,
                start=job.next_position,
                tokens=job.prompt[job.next_position : end],
                sample=sample if chooses else None,
            )
            turn.prefill = PrefillStep(job.ticket, unit)
        else:
            turn.tickets.append(job.ticket)
            turn.rows.append(
                DecodeRow(slot=job.slot, pages=job.pages, position=job.next_position, token=job.feed, sample=sample)
            )
        job.next_position = end
        job.in_flight += 1
        if chooses:
            job.ready_s = turn.now_s + job.pacing.each_s

    def _acquire(self, job: Job, end: int, turn: _Turn) -> bool:
        """Make the job's table cover all positions before `end`."""
        missing = pages_for(end) - len(job.pages)
        if missing <= 0:
            return True
        if turn.short or not self._lanes.make_room(job, missing):
            turn.short = True
            return False
        self._lanes.grow(job, missing)
        return True

    # Results

    def _commit_prefill(self, job: Job, unit: PrefillUnit, result: UnitResult, now_s: float, notes: list[Note]) -> None:
        end = unit.start + len(unit.tokens)
        self._advance(job, unit.start, end)
        new_tokens = max(0, end - max(unit.start, job.prompt_done))
        self._counters.prefilled_tokens += new_tokens
        self._count_replayed(job, len(unit.tokens) - new_tokens)
        if new_tokens:
            job.prompt_done = end
            notes.append((job.ticket, PromptProgress(end, now_s)))
        if unit.sample is not None:
            self._choose(job, result.tokens[0], now_s, notes)
        elif end == len(job.prompt) and not job.limit_tokens:
            self._finish_if_complete(job)

    def _commit_row(self, job: Job, row: DecodeRow, token: int, now_s: float, notes: list[Note]) -> None:
        end = row.position + 1
        self._advance(job, row.position, end)
        if row.position < job.rebuild_to:
            self._count_replayed(job, 1)
        if end - len(job.prompt) == len(job.generated):
            self._choose(job, token, now_s, notes)

    def _advance(self, job: Job, start: int, end: int) -> None:
        """Positions from `start` to before `end` are committed."""
        self._lanes.pages.commit(job.ticket, end // PAGE_TOKENS)
        job.frontier = end
        if job.leaving is not None:
            return  # put out again: this cycle has been told as broken off
        if start >= job.rebuild_to and job.phase is not Phase.STEADY:
            job.phase = Phase.STEADY
            self._lanes.note(job, Transition.RECOVERY_COMPLETE)
        self._rebuild(job)

    def _rebuild(self, job: Job) -> None:
        if job.phase is Phase.REPLAYING and job.frontier >= job.rebuild_to:
            job.phase = Phase.REBUILT
            self._lanes.note(job, Transition.REPLAY_COMPLETE)

    def _count_replayed(self, job: Job, tokens: int) -> None:
        job.replayed_tokens += tokens
        self._counters.replayed_tokens += tokens

    def _choose(self, job: Job, token: int, now_s: float, notes: list[Note]) -> None:
        job.generated.append(token)
        self._counters.generated_tokens += 1
        notes.append((job.ticket, Tokens((token,), now_s)))
        self._finish_if_complete(job)
        if job.leaving is not Leaving.ENDED and (forced := job.due(token)):
            job.generated += forced
            self._counters.generated_tokens += len(forced)
            self._counters.forced_tokens += len(forced)
            notes.append((job.ticket, Tokens(forced, now_s, forced=True)))
            self._finish_if_complete(job)

    def _finish_if_complete(self, job: Job) -> None:
        reason = job.stop_reason(self._limits.request_tokens)
        if reason is not None:
            self._end(job, Finished(reason))

    def _end(self, job: Job, outcome: EngineEvent) -> None:
        job.leaving, job.outcome = Leaving.ENDED, outcome

    def _vacate(self, job: Job, notes: list[Note], now_s: float) -> None:
        """Let a job go that leaves, if nothing of it is in flight; whoever has ended is told so then, not before."""
        gone = self._lanes.vacate(job)
        self._tell_moves(notes, now_s)
        if gone:
            del self._jobs[job.ticket]
            if job.outcome is not None:
                notes.append((job.ticket, job.outcome))

    def _tell_moves(self, notes: list[Note], now_s: float) -> None:
        for job, transition, pause in self._lanes.moves:
            event = Rescheduled(
                transition=transition, pause=pause, own=job.work, everybody=self._counters.work, at_s=now_s
            )
            notes.append((job.ticket, event))
        self._lanes.moves.clear()


def _tickets(step: PrefillStep | DecodeStep) -> tuple[int, ...]:
    return (step.ticket,) if isinstance(step, PrefillStep) else step.tickets


def _held_back(job: Job, turn: _Turn) -> bool:
    """Whether the job's pacing does not let it choose a token yet."""
    if job.ready_s is None:
        job.ready_s = turn.now_s + job.pacing.first_s
    if job.ready_s <= turn.now_s:
        return False
    turn.wake_s = job.ready_s if turn.wake_s is None else min(turn.wake_s, job.ready_s)
    return True
