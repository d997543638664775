"""Lanes and their memory: who is in, who was put out to make room, and the books of pages and slots.

A lane is taken by `enter` and given back by `vacate`, never while a unit in flight uses it. Memory goes by age: room
for a request is made by pausing younger ones, the youngest first. Knows nothing of units and results, and only notes
what becomes of the lanes of admitted requests.

Invariants: `resident` and `paused` are in the order of arrival; exactly the residents own slots, only they own pages.
"""

import bisect

from ninfer.engine.cache import LedgerError, PageLedger, SlotLedger, pages_for
from ninfer.engine.scheduler.job import Job, Leaving
from ninfer.engine.types import Transition


def _age(job: Job) -> int:
    return job.ticket


class Lanes:
    """All lanes of one engine."""

    def __init__(self, *, lanes: int, total_pages: int) -> None:
        self.pages = PageLedger(total_pages)
        self.slots = SlotLedger(lanes)
        self.resident: list[Job] = []
        self.paused: list[Job] = []
        self.pauses = 0
        self.restores = 0
        self.moves: list[tuple[Job, Transition, int]] = []
        """What has happened since the scheduler last told about it, and in which pause of the job."""

    @property
    def unpromised_pages(self) -> int:
        """Free pages that no resident's prompt or next token still needs.

        Nothing is reserved by this. It keeps admission sober, and a paused request from coming back to pages for which
        it would be paused again in the same turn.
        """
        promised = sum(
            max(0, pages_for(max(len(job.prompt), job.next_position + 1)) - len(job.pages))
            for job in self.resident
            if job.wants_unit
        )
        return self.pages.free_pages - promised

    def outranked(self, job: Job) -> bool:
        """Whether anyone older is in a lane to stay."""
        return any(other.ticket < job.ticket and other.leaving is None for other in self.resident)

    def enter(self, job: Job, *, pages: int = 0) -> None:
        """Give `job` a free lane, and free pages with it."""
        job.slot = self.slots.take(job.ticket)
        bisect.insort(self.resident, job, key=_age)
        self.grow(job, pages)

    def restore(self, job: Job, *, pages: int) -> None:
        """Give a paused job a free lane again, and free pages to be replayed in."""
        self.paused.remove(job)
        self.enter(job, pages=pages)
        self.restores += 1
        self.note(job, Transition.RESTORED)

    def note(self, job: Job, transition: Transition) -> None:
        """Remember what has happened to a job, for the scheduler to tell."""
        self.moves.append((job, transition, job.pauses))

    def grow(self, job: Job, pages: int) -> None:
        """Append free pages to the job's table."""
        if not self.pages.reserve(job.ticket, pages):
            raise LedgerError(f"{job.ticket} takes {pages} pages and {self.pages.free_pages} are free")
        job.pages = self.pages.table(job.ticket)

    def make_room(self, job: Job, pages: int, *, slots: int = 0) -> bool:
        """Pause requests younger than `job`, the youngest first, until this much is free.

        False while that has to wait: for those who leave, or for older requests that nobody may pause.
        """
        while self.pages.free_pages < pages or self.slots.free_slots < slots:
            leaving = [other for other in self.resident if other.leaving is not None]
            draining_pages = sum(len(other.pages) for other in leaving)
            if self.pages.free_pages + draining_pages >= pages and self.slots.free_slots + len(leaving) >= slots:
                return False
            younger = (other for other in reversed(self.resident) if other.ticket > job.ticket)
            victim = next((other for other in younger if other.leaving is None), None)
            if victim is None:
                return False
            self.pauses += 1
            self.put_out(victim)
            self.vacate(victim)
        return True

    def put_out(self, job: Job) -> None:
        """Let `job` give its lane up as soon as it can."""
        job.leaving = Leaving.PAUSED
        job.pauses += 1
        self.note(job, Transition.PAUSE_STARTED)

    def vacate(self, job: Job) -> bool:
        """Take lane and memory from a job that leaves, once nothing in flight uses them. True if it has ended now."""
        if job.leaving is None or job.in_flight:
            return False
        self.resident.remove(job)
        self.pages.release(job.ticket)
        self.slots.release(job.ticket)
        if job.leaving is Leaving.ENDED:
            return True
        job.rewind()
        bisect.insort(self.paused, job, key=_age)
        self.note(job, Transition.PAUSED)
        return False

    def check(self) -> None:
        """Compare the books with each other and with the lanes.

        Raises:
            LedgerError: something has leaked or is held twice.
        """
        self.pages.check()
        self.slots.check()
        residents = {job.ticket for job in self.resident}
        if self.slots.owners != residents or not self.pages.owners <= residents:
            raise LedgerError("memory belongs to a request that has no lane")
