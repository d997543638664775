"""The device thread's loop: commands in, units out, results back one step later, events to whoever listens.

Every method but `submit`, `cancel` and `close` belongs to one thread, the only one that touches the device. `step` is
the whole loop body and never waits for commands, so tests call it without a thread. The worker decides nothing about
requests (the scheduler does) and knows no Trio (the engine does): it carries plans out and sorts failures. A unit that
took the device's memory with it fails its own requests; everybody else is replayed (D39).

Invariant: the units of step t+1 are dispatched before the results of step t are read.
"""

import logging
import queue
from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from ninfer.engine.device import Device, Pending
from ninfer.engine.faults import Fault, classify
from ninfer.engine.scheduler import UNPACED, DecodeStep, Note, Pacing, PrefillStep, Scheduler, Settled, StepPlan
from ninfer.engine.types import EngineFigures, EngineLimits, EngineStopped, Plan, Prompt

MOST_RECOVERIES = 8
"""Failed units in a row that the engine survives (D14)."""

logger = logging.getLogger(__name__)


@attrs.frozen
class Submit:
    """Command: take this request."""

    ticket: int
    prompt: Prompt
    plan: Plan


@attrs.frozen
class Cancel:
    """Command: drop this request."""

    ticket: int


@attrs.frozen
class Close:
    """Command: end the loop."""


Command: TypeAlias = Submit | Cancel | Close

Publish: TypeAlias = Callable[[Sequence[Note]], None]
"""Takes the events of a step, in order. Called on the device thread; must not wait for anybody."""

Direct: TypeAlias = Callable[[Prompt, Plan], tuple[Plan, Pacing]]
"""Last word on how a request is run: the scripted engine's way to let a script limit and pace its own output."""


@attrs.frozen
class _InFlight:
    step: PrefillStep | DecodeStep
    pending: Pending


class _MemoryLost(Exception):
    """The device has empty memory now: what is in flight has no result any more."""


def run_as_asked(prompt: Prompt, plan: Plan) -> tuple[Plan, Pacing]:
    """The direction of every model: none."""
    return plan, UNPACED


class Worker:
    """The loop and what it carries from one step to the next."""

    def __init__(
        self,
        *,
        device: Device,
        limits: EngineLimits,
        publish: Publish,
        clock: Callable[[], float],
        direct: Direct = run_as_asked,
    ) -> None:
        self._device = device
        self._limits = limits
        self._publish = publish
        self._clock = clock
        self._direct = direct
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._scheduler: Scheduler | None = None
        self._in_flight: list[_InFlight] = []
        self._failures_in_a_row = 0
        self._recoveries = 0
        self._losses = 0
        self._closing = False
        self._wake_s: float | None = None
        self._figures: EngineFigures | None = None

    # From any thread

    def submit(self, ticket: int, prompt: Prompt, plan: Plan) -> None:
        """Queue a request; tickets grow with each one."""
        self._commands.put(Submit(ticket, prompt, plan))

    def cancel(self, ticket: int) -> None:
        """Drop a request; one that has ended already is fine."""
        self._commands.put(Cancel(ticket))

    def close(self) -> None:
        """End the loop after the step that is running."""
        self._commands.put(Close())

    @property
    def figures(self) -> EngineFigures:
        """The figures after the latest step."""
        if self._figures is None:
            raise EngineStopped("the engine is not ready")
        return self._figures

    # On the device thread

    def prepare(self) -> None:
        """Make the device ready: compile, allocate, open the books. Raises what the device raises."""
        self._device.prepare()
        self._scheduler = Scheduler(
            self._limits, total_pages=self._device.total_pages, total_slots=self._device.total_slots
        )
        self._note_figures(self._scheduler)

    def run(self) -> None:
        """Loop until closed.

        Raises:
            EngineStopped: too many failures in a row, or the device is lost, or a fault of ours.
        """
        try:
            while True:
                self.wait()
                if not self.step():
                    return
        except EngineStopped:
            raise
        except Exception as error:
            logger.exception("worker crash: %s", error)
            raise EngineStopped(f"the worker crashed: {error}") from error

    def wait(self) -> None:
        """Block while there is nothing to do; a command, or a paced request that may go on, ends that."""
        scheduler = self._ready()
        if self._closing or self._in_flight:
            return
        if not scheduler.has_work:
            if self._commands.empty():  # truly idle: nobody waits for the check
                scheduler.check()
            self._take(self._commands.get())
        elif self._wake_s is not None:
            try:
                self._take(self._commands.get(timeout=max(0.0, self._wake_s - self._clock())))
            except queue.Empty:
                return

    def step(self) -> bool:
        """One turn of the loop: commands, plan, dispatch, then the results of the turn before. False once closed."""
        scheduler = self._ready()
        while not self._closing:
            try:
                self._take(self._commands.get_nowait())
            except queue.Empty:
                break
        if self._closing:
            return False
        plan = scheduler.plan(self._clock())
        notes = list(plan.notes)
        idle = not (notes or plan.prefill or plan.decode or self._in_flight)
        try:
            self._run(plan, notes)
        except _MemoryLost:
            self._in_flight = []
            self._losses += 1
            notes.extend(scheduler.lose(self._clock()))
        # Only a turn in which nothing happened may be followed by a wait: any result can be what somebody waits for.
        stuck = scheduler.has_work and idle
        if stuck and plan.wake_s is None:
            raise RuntimeError("there is work and no unit to run")
        self._wake_s = plan.wake_s if stuck else None
        self._note_figures(scheduler)
        if notes:
            self._publish(notes)
        return True

    def _run(self, plan: StepPlan, notes: list[Note]) -> None:
        """Dispatch the plan's units, then read those of the turn before."""
        behind, self._in_flight = self._in_flight, []
        for step in (plan.prefill, plan.decode):
            if step is not None:
                self._dispatch(step, notes)
        for unit in behind:
            self._collect(unit, notes)

    def _ready(self) -> Scheduler:
        if self._scheduler is None:
            raise EngineStopped("the engine is not ready")
        return self._scheduler

    def _note_figures(self, scheduler: Scheduler) -> None:
        # Before the events go out: who hears that a request has ended finds its memory free.
        self._figures = scheduler.figures(
            compilations=self._device.compilations, recoveries=self._recoveries, losses=self._losses
        )

    def _take(self, command: Command) -> None:
        scheduler = self._ready()
        match command:
            case Submit(ticket, prompt, plan):
                directed, pacing = self._direct(prompt, plan)
                notes = scheduler.submit(ticket, prompt, directed, pacing)
                if notes:
                    self._publish(notes)
            case Cancel(ticket):
                scheduler.cancel(ticket)
            case Close():
                self._closing = True

    def _dispatch(self, step: PrefillStep | DecodeStep, notes: list[Note]) -> None:
        try:
            pending = (
                self._device.prefill(step.unit) if isinstance(step, PrefillStep) else self._device.decode(step.rows)
            )
        except Exception as error:
            self._unit_raised(step, error, notes)
        else:
            self._in_flight.append(_InFlight(step, pending))

    def _collect(self, unit: _InFlight, notes: list[Note]) -> None:
        try:
            result = unit.pending.read()
        except Exception as error:
            self._unit_raised(unit.step, error, notes)
            return
        settled = self._ready().commit(unit.step, result, self._clock())
        notes.extend(settled.notes)
        if settled.faulty_rows:
            self._count_failure(Fault.FAILED_CHECK, "the logits were not finite")
        elif settled.live_rows:
            # A unit that nobody wanted any more says nothing about the health of those that are wanted.
            self._failures_in_a_row = 0

    def _unit_raised(self, step: PrefillStep | DecodeStep, error: Exception, notes: list[Note]) -> None:
        fault, failure = classify(error)
        if isinstance(failure, EngineStopped):
            logger.error("worker crash: %s", error, exc_info=error)
            raise failure from error
        settled: Settled = self._ready().fail(step, failure, self._clock())
        notes.extend(settled.notes)
        if settled.live_rows:
            self._count_failure(fault, str(error))
        if self._memory_is_lost():
            raise _MemoryLost

    def _memory_is_lost(self) -> bool:
        try:
            return self._device.recover()
        except Exception as error:
            logger.error("the device's memory could not be made again: %s", error, exc_info=error)
            _, failure = classify(error)
            if isinstance(failure, EngineStopped):
                raise failure from error
            raise EngineStopped(f"the device's memory could not be made again: {error}") from error

    def _count_failure(self, fault: Fault, reason: str) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row > MOST_RECOVERIES:
            logger.error("worker stopped: %d units in a row have failed, the last one: %s", MOST_RECOVERIES + 1, reason)
            raise EngineStopped(f"{MOST_RECOVERIES + 1} units in a row have failed, the last one: {reason}")
        self._recoveries += 1
        if fault is Fault.OUT_OF_MEMORY:
            logger.warning("worker out of memory: %s - recovering", reason)
        else:
            logger.warning("worker recovering from a failed request: %s", reason)
