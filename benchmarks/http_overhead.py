"""What HTTP costs: time added to the first token, and events per second, beside an application that answers constants.

    python -m benchmarks.http_overhead [--runs 5] [--requests 200] [--events 20000] [--write FILE]

Server and client are processes of their own, each on one core where the system lets us choose. The variants take turns
in every run, so that a busy minute of the machine hits all of them. Printed is the median over the runs with the
smallest and the largest. `--write docs/performance.md` puts the tables between that document's marks.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from benchmarks.raw_client import Rate, event_rate, first_token_s, request_bytes
from tests.fuzz.house import MODEL

VARIANTS = ("constants", "ninfer", "house")
STREAMS = (1, 8, 64)
PROMPT_BYTES = 1_000
MARKS = "http_overhead"
HOUSE_LANES = 2
HOUSE_EVENTS = 400
"""What a lane's context has room for; the house's streams are shorter than the others'."""


@attrs.frozen(kw_only=True)
class Sizes:
    """How much is measured."""

    runs: int
    requests: int
    events: int


@attrs.define
class Results:
    """One variant's figures, one entry a run."""

    first_median_s: list[float] = attrs.field(factory=list)
    first_p99_s: list[float] = attrs.field(factory=list)
    rates: dict[int, list[Rate]] = attrs.field(factory=dict)  # number of streams -> rates


@contextmanager
def server(variant: str, core: int | None) -> Iterator[int]:
    """A server process; the block gets its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.overhead_server", variant],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)


def measure(variant: str, port: int, sizes: Sizes, results: Results) -> None:
    """One run of one variant."""
    short = request_bytes(1, prompt_bytes=PROMPT_BYTES, model=MODEL)
    first_token_s(port, short, 20)  # warm up: imports, caches, TCP windows
    times = sorted(first_token_s(port, short, sizes.requests))
    results.first_median_s.append(statistics.median(times))
    results.first_p99_s.append(times[len(times) * 99 // 100])
    for streams in STREAMS:
        if variant == "house" and streams > HOUSE_LANES:
            continue
        events = HOUSE_EVENTS if variant == "house" else sizes.events // streams
        request = request_bytes(events, prompt_bytes=PROMPT_BYTES, model=MODEL)
        results.rates.setdefault(streams, []).append(event_rate(port, request, streams))


def spread(values: Sequence[float], form: str, factor: float = 1.0) -> str:
    """Median, smallest and largest."""
    low, middle, high = min(values) * factor, statistics.median(values) * factor, max(values) * factor
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


def tables(all_results: dict[str, Results]) -> list[str]:
    """The results as Markdown."""
    floor_s = statistics.median(all_results["constants"].first_median_s)
    lines = [
        "| application | first token, median ms | 99th percentile ms | beyond constants, ms |",
        "|---|---|---|---|",
    ]
    for variant, results in all_results.items():
        beyond_ms = (statistics.median(results.first_median_s) - floor_s) * 1e3
        first, last = spread(results.first_median_s, ".2f", 1e3), spread(results.first_p99_s, ".2f", 1e3)
        lines.append(f"| {variant} | {first} | {last} | {beyond_ms:.2f} |")
    lines += ["", "| application | streams | events/s | events per write |", "|---|---|---|---|"]
    for variant, results in all_results.items():
        for streams, rates in results.rates.items():
            rate = spread([one.events_per_s for one in rates], ",.0f")
            joined = statistics.median([one.events_per_piece for one in rates])
            lines.append(f"| {variant} | {streams} | {rate} | {joined:.1f} |")
    return lines


def write(document: Path, lines: Sequence[str], marks: str) -> None:
    """Put `lines` between the marks of a document that have this name, in place of what stands there."""
    text = document.read_text(encoding="utf-8")
    first, last = f"<!-- {marks}: begin -->", f"<!-- {marks}: end -->"
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not end:
        raise SystemExit(f"{document} has no marks {first} and {last}")
    document.write_text("\n".join([before + begin, "", *lines, "", end + after]), encoding="utf-8")


def machine() -> str:
    """What it ran on, in one line."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    names = [line for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else platform.machine()
    return f"{name}, {len(cores)} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} before"


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_overhead")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    sizes = Sizes(runs=options.runs, requests=options.requests, events=options.events)
    where = (
        f"{time.strftime('%Y-%m-%d')}, {machine()}: {sizes.runs} runs, {sizes.requests} requests for the first token, "
        f"{sizes.events:,} events for the rate."
    )
    print(where)
    server_core, client_core = None, None
    if hasattr(os, "sched_setaffinity") and len(cores := sorted(os.sched_getaffinity(0))) > 1:
        server_core, client_core = cores[0], cores[1]
        os.sched_setaffinity(0, {client_core})
    all_results = {variant: Results() for variant in VARIANTS}
    for run in range(sizes.runs):
        for variant, results in all_results.items():
            print(f"run {run + 1} of {sizes.runs}: {variant}", file=sys.stderr, flush=True)
            with server(variant, server_core) as port:
                measure(variant, port, sizes, results)
    lines = tables(all_results)
    print("\n".join(lines))
    if options.write is not None:
        write(options.write, [where, "", *lines], MARKS)


if __name__ == "__main__":
    main(sys.argv[1:])
