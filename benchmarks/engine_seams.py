"""Where the device thread's time goes, seen from outside: a clock around every seam between worker and device.

The worker asks its clock before it plans and after it has read a result, calls the device to dispatch and to read, and
publishes what came of it. Each of these calls leaves a stamp; the time between two stamps belongs to what lies between
them. Times are the thread's own CPU time, which neighbours on the machine do not change, and the wall clock.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import attrs

from ninfer.engine.device import DecodeRow, Device, Pending, PrefillUnit, UnitResult
from ninfer.engine.engine import RunningEngine
from ninfer.engine.scheduler import Note
from ninfer.engine.types import EngineLimits

PLAN, DISPATCH, READ, COMMIT, PUBLISH, LOOP = "plan", "pack and dispatch", "wait and read", "commit", "publish", "loop"
PARTS = (PLAN, DISPATCH, READ, COMMIT, PUBLISH, LOOP)
_BETWEEN = {
    ("clock", "dispatch"): PLAN,
    ("dispatch", "dispatched"): DISPATCH,
    ("dispatched", "read"): PLAN,
    ("read", "readout"): READ,
    ("readout", "clock"): COMMIT,
    ("clock", "publish"): COMMIT,
    ("publish", "published"): PUBLISH,
    ("published", "clock"): LOOP,
}


@attrs.define(eq=False)
class Seams:
    """The stamps of one device thread: label, wall ns, CPU ns of the thread. Off until `record` is set."""

    stamps: list[tuple[str, int, int]] = attrs.field(factory=list)
    record: bool = False

    def stamp(self, label: str) -> None:
        """Note that this point was passed."""
        if self.record:
            self.stamps.append((label, time.perf_counter_ns(), time.thread_time_ns()))

    def clock(self) -> float:
        """The engine's clock."""
        self.stamp("clock")
        return time.monotonic()

    def parts_us(self) -> dict[str, tuple[float, float]]:
        """Part of a turn -> median microseconds of the thread's CPU and of the wall, over turns with one dispatch."""
        cpu: dict[str, list[float]] = defaultdict(list)
        wall: dict[str, list[float]] = defaultdict(list)
        turn: dict[str, list[float]] = {}
        for (before, wall_0, cpu_0), (after, wall_1, cpu_1) in zip(self.stamps, self.stamps[1:], strict=False):
            part = _BETWEEN.get((before, after))
            if part is None:
                turn = {}  # idle or several units: not a plain turn
                continue
            times = turn.setdefault(part, [0.0, 0.0])
            times[0] += (cpu_1 - cpu_0) / 1e3
            times[1] += (wall_1 - wall_0) / 1e3
            if part is LOOP:
                if set(turn) == set(PARTS):
                    for name, (used, passed) in turn.items():
                        cpu[name].append(used)
                        wall[name].append(passed)
                turn = {}
        return {part: (statistics.median(cpu[part]), statistics.median(wall[part])) for part in PARTS if cpu[part]}


@attrs.frozen
class _TimedUnit:
    inner: Pending
    seams: Seams

    def read(self) -> UnitResult:
        self.seams.stamp("read")
        result = self.inner.read()
        self.seams.stamp("readout")
        return result


@attrs.define(eq=False)
class TimedDevice:
    """A device behind stamps. It is prepared once, whatever number of engines run on it one after the other."""

    inner: Device
    seams: Seams
    prepared: bool = False
    prepare_s: float = 0.0

    @property
    def total_pages(self) -> int:
        """Pages of the KV pool."""
        return self.inner.total_pages

    @property
    def total_slots(self) -> int:
        """Recurrent-state slots."""
        return self.inner.total_slots

    @property
    def compilations(self) -> int:
        """Programs compiled so far."""
        return self.inner.compilations

    def prepare(self) -> None:
        """Compile and allocate, the first time."""
        if not self.prepared:
            begin_s = time.perf_counter()
            self.inner.prepare()
            self.prepare_s = time.perf_counter() - begin_s
            self.prepared = True

    def prefill(self, unit: PrefillUnit) -> Pending:
        """Dispatch one prefill chunk."""
        return self._timed(lambda: self.inner.prefill(unit))

    def decode(self, rows: tuple[DecodeRow, ...]) -> Pending:
        """Dispatch one decode round."""
        return self._timed(lambda: self.inner.decode(rows))

    def recover(self) -> bool:
        """Whether a failed unit took the memory with it."""
        return self.inner.recover()

    def _timed(self, dispatch: Callable[[], Pending]) -> Pending:
        self.seams.stamp("dispatch")
        pending = dispatch()
        self.seams.stamp("dispatched")
        return _TimedUnit(pending, self.seams)


class TimedEngine(RunningEngine):
    """The engine with stamps around its publishing. Opened and closed by hand, in a Trio task."""

    def __init__(self, device: TimedDevice, limits: EngineLimits) -> None:
        super().__init__(device, limits, clock=device.seams.clock)
        self._seams = device.seams

    def _post(self, notes: Sequence[Note]) -> None:
        self._seams.stamp("publish")
        super()._post(notes)
        self._seams.stamp("published")
