"""Which kernels a step runs and what each takes, out of jax's profiler.

Knows the profiler's planes and lines: those of a device have one event a kernel; on the CPU, where there is no such
plane, the events of XLA's operations stand in. Counters in names are taken off, so that the same operation of each
layer is one row; behind two underscores they tell builds of one kernel for different shapes apart, and stay.

Kernels may start before the ones that they wait for have ended, and operations may lie within others. So a kernel is
charged with the time from the latest end before its own, or from its start if that is later: no time counts twice.
"""

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
from jax.profiler import ProfileData

from ninfer.engine.bench.report import KernelRow, KernelTable

_COUNTER = re.compile(r"(?<!_)(?:[._]\d+)+$")


def profile(of: str, work: Callable[[], object], steps: int) -> KernelTable:
    """Run `work`, which does `steps` steps, under the profiler."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            work()
        (file,) = Path(folder).glob("**/*.xplane.pb")
        return kernel_table(of, ProfileData.from_file(str(file)), steps)


def kernel_table(of: str, data: ProfileData, steps: int) -> KernelTable:
    """Kernels by the time that they take, the slowest first."""
    calls: Counter[str] = Counter()
    took_us: defaultdict[str, float] = defaultdict(float)
    covered_ns = float("-inf")
    for name, start_ns, end_ns in sorted(_events(data), key=lambda event: event[2]):
        kernel = _short(name)
        calls[kernel] += 1
        took_us[kernel] += (end_ns - max(start_ns, min(covered_ns, end_ns))) / 1e3
        covered_ns = max(covered_ns, end_ns)
    everything = sum(took_us.values()) or 1.0
    rows = tuple(
        KernelRow(name=name, calls=calls[name] / steps, step_us=total / steps, share=total / everything)
        for name, total in sorted(took_us.items(), key=lambda item: -item[1])
    )
    return KernelTable(of=of, rows=rows)


def _short(name: str) -> str:
    """Without counters; of a C++ function only its own name, without what it is in, made for and called with."""
    own: str = re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0].rpartition("::")[2]
    return _COUNTER.sub("", own)


def _events(data: ProfileData) -> Iterator[tuple[str, float, float]]:
    """Name, start and end (ns) of everything that ran on the device."""
    planes = [plane for plane in data.planes if plane.name.startswith("/device:")]
    for plane in planes:
        for line in plane.lines:
            if line.name.startswith("Stream"):
                yield from ((event.name, event.start_ns, event.end_ns) for event in line.events)
    if planes:
        return
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                if any(name == "hlo_op" for name, _ in event.stats):
                    yield event.name, event.start_ns, event.end_ns
