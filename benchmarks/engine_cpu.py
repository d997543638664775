"""The engine on the CPU: what a request gets, where the host's time goes, what determinism costs, what llama.cpp does.

    python -m benchmarks.engine_cpu [--models demo golden wide] [--runs 5] [--write FILE]
        [--llama VENV/bin/python --gguf FILE.gguf]

Everything goes through the real worker and device; variants take turns within a run. Printed is the median over the
runs with the smallest and the largest. `--write docs/performance.md` puts the tables between that document's marks.
`--llama` names the interpreter of an environment that has `xllamacpp` and nothing of ours.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import jax
import trio

from benchmarks.engine_http import served, stream_rate
from benchmarks.engine_models import BenchModel, artifact_path, load
from benchmarks.engine_naive import decode_rows, rule_cost
from benchmarks.engine_runs import CHUNKS, Gaps, Stage, decode_rate, gaps, host_parts, prefill_rate
from benchmarks.engine_seams import DISPATCH, PARTS, READ, Seams, TimedDevice
from benchmarks.http_overhead import machine, spread, write
from ninfer.engine.cache import pages_for
from ninfer.engine.programs.plan import pack_decode

MARKS = "engine_cpu"
BATCHES = (1, 2, 4, 8)
RUN_LLAMA = Path(__file__).with_name("llama_cpp_run.py")


def log(text: str) -> None:
    """Tell how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def rates_table(stage: Stage, runs: int, new_tokens: int) -> list[str]:
    """Tokens a second by batch size, and the bytes that were read for them."""
    results: dict[int, list[float]] = defaultdict(list)

    async def measure() -> None:
        async with stage.engine(CHUNKS[-1]) as engine:
            for run in range(runs + 1):
                for batch in BATCHES:
                    rate = await decode_rate(stage, engine, batch, new_tokens)
                    if run:  # the first one warms up
                        results[batch].append(rate)

    trio.run(measure)
    model = stage.model
    lines = ["| batch | tokens/s together | ms a round | weights read, GB/s |", "|---|---|---|---|"]
    for batch, rates in results.items():
        rounds = [rate / batch for rate in rates]
        gigabytes = spread([per_s * model.weight_bytes for per_s in rounds], ".1f", 1e-9)
        times = spread([1 / per_s for per_s in rounds], ".2f", 1e3)
        lines.append(f"| {batch} | {spread(rates, '.1f')} | {times} | {gigabytes} |")
    return lines


def prefill_table(stage: Stage, runs: int, length: int) -> list[str]:
    """Prompt tokens a second by chunk."""
    results: dict[int, list[float]] = defaultdict(list)
    for run in range(runs + 1):
        for chunk in CHUNKS:
            rate = trio.run(prefill_rate, stage, chunk, length)
            if run:
                results[chunk].append(rate)
    lines = [f"| prefill chunk | tokens/s of a prompt of {length} |", "|---|---|"]
    return lines + [f"| {chunk} | {spread(rates, ',.0f')} |" for chunk, rates in results.items()]


def gaps_table(stage: Stage, runs: int, length: int, new_tokens: int) -> list[str]:
    """Gaps between the tokens of one request while a foreign prompt prefills."""
    results: dict[int, list[Gaps]] = {chunk: [] for chunk in CHUNKS}
    for _ in range(runs):
        for chunk in CHUNKS:
            results[chunk].append(trio.run(gaps, stage, chunk, length, new_tokens))
    lines = [
        f"| prefill chunk | gap alone, p50 ms | while a prompt of {length} prefills: p50 | p99 | max "
        "| one chunk + one round |",
        "|---|---|---|---|---|---|",
    ]
    for chunk, found in results.items():
        alone = sorted(gap_s for one in found for gap_s in one.alone_s)
        during = sorted(gap_s for one in found for gap_s in one.during_s)
        chunk_s, round_s = max(one.chunk_s for one in found), alone[len(alone) // 2]
        shown = [at(alone, 0.5), at(during, 0.5), at(during, 0.99), during[-1], chunk_s + round_s]
        lines.append(f"| {chunk} | " + " | ".join(f"{value_s * 1e3:.1f}" for value_s in shown) + " |")
    return lines


def at(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of all lie."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def host_table(stage: Stage, runs: int, new_tokens: int) -> list[str]:
    """Microseconds of a turn, by what the device thread does."""
    batches = (1, 8)
    results: dict[int, list[dict[str, tuple[float, float]]]] = {batch: [] for batch in batches}

    async def measure() -> None:
        async with stage.engine(CHUNKS[-1]) as engine:
            for run in range(runs + 1):
                for batch in batches:
                    parts = await host_parts(stage, engine, batch, new_tokens)
                    if run:
                        results[batch].append(parts)

    trio.run(measure)
    lines = ["| µs of CPU in a turn | " + " | ".join(f"batch {batch}" for batch in batches) + " |", "|---|---|---|"]
    for part in PARTS:
        cells = [spread([parts[part][0] for parts in results[batch]], ".0f") for batch in batches]
        lines.append(f"| {part} | " + " | ".join(cells) + " |")
    host = [name for name in PARTS if name != READ]
    sums = [[sum(parts[name][0] for name in host) for parts in results[batch]] for batch in batches]
    lines.append("| all but waiting | " + " | ".join(spread(each, ".0f") for each in sums) + " |")
    packing = [spread([pack_us(stage.model, batch) for _ in range(runs)], ".0f") for batch in batches]
    lines.append("| packing the plan, by itself | " + " | ".join(packing) + " |")
    walls = [spread([parts[DISPATCH][1] for parts in results[batch]], ".0f") for batch in batches]
    lines.append("| pack and dispatch, by the wall | " + " | ".join(walls) + " |")
    return lines


def pack_us(model: BenchModel, batch: int) -> float:
    """Microseconds of packing a decode round in the middle of the context: a part of `pack and dispatch`."""
    pages, repeats = pages_for(model.context_tokens), 200
    rows = decode_rows(batch, pages, model.context_tokens // 2)
    begin_s = time.thread_time()
    for _ in range(repeats):
        pack_decode(rows, pages=pages)
    return (time.thread_time() - begin_s) / repeats * 1e6


def rule_table(model: BenchModel, runs: int, steps: int) -> list[str]:
    """The engine's decode round beside the naive form of it."""
    lines = [
        "| batch | ms a round | the same again | naive form | naive / ours | again / ours | logits differ by |",
        "|---|---|---|---|---|---|---|",
    ]
    for batch in BATCHES:
        cost = rule_cost(model, batch, runs=runs, steps=steps)
        cells = [spread(times, ".2f", 1e3) for times in (cost.ours_s, cost.again_s, cost.naive_s)]
        for other in (cost.naive_s, cost.again_s):
            cells.append(spread([b / a for a, b in zip(cost.ours_s, other, strict=True)], ".2f"))
        lines.append(f"| {batch} | " + " | ".join(cells) + f" | {cost.difference:.0e} |")
    return lines


def http_lines(artifact: Path, cache: Path, runs: int, new_tokens: int, context_tokens: int) -> list[str]:
    """Ready time and the rate of one stream through a served process."""
    ready, rates = [], []
    for run in range(runs + 1):
        with served(artifact, cache, context_tokens=context_tokens) as server:
            stream_rate(server.url, 16)
            if run:  # the first start fills the compile cache
                ready.append(server.ready_s)
                rates.append(stream_rate(server.url, new_tokens))
    return [
        f"Through HTTP (`serve`, one lane, context of {context_tokens}): {spread(rates, '.1f')} tokens/s in a single "
        f"stream, ready {spread(ready, '.1f')} s after the start, with a warm compile cache."
    ]


def llama_table(python: Path, gguf: Path, runs: int, ours: Sequence[str]) -> list[str]:
    """llama.cpp on the same cores; `ours` are rows of the same table."""
    size = gguf.stat().st_size
    lines = [
        "| engine | model | bytes read a token | tokens/s | GB/s | prompt tokens/s |",
        "|---|---|---|---|---|---|",
        *ours,
    ]
    for threads in (1, 2):  # two that wait for each other by spinning are lost on a machine that has other work
        command = [str(python), str(RUN_LLAMA), str(gguf), "--runs", str(runs), "--tokens", "48", "--prompt", "128"]
        command += ["--threads", str(threads)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        per_s = [one["decode_per_s"] for one in found]
        prompt = spread([one["prompt_per_s"] for one in found], ",.0f")
        gigabytes = spread([rate * size for rate in per_s], ".1f", 1e-9)
        name = f"llama.cpp, {found[0]['package']}, threads: {threads}"
        lines.append(f"| {name} | {gguf.stem} | {size:,} | {spread(per_s, '.1f')} | {gigabytes} | {prompt} |")
    return lines


def model_tables(model: BenchModel, options: argparse.Namespace) -> tuple[list[str], str]:
    """Everything about one model, and its row for the comparison with llama.cpp."""
    seams = Seams()
    device = TimedDevice(model.device(lanes=BATCHES[-1], chunk_tokens=CHUNKS[-1], cache=options.cache), seams)
    log(f"{model.name}: compiling")
    device.prepare()
    stage = Stage(model=model, device=device, seams=seams, lanes=BATCHES[-1])
    length = min(options.prompt, model.context_tokens // 2)
    new_tokens = min(options.tokens, model.context_tokens // 4)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(model.weights))
    lines = [
        f"### {model.name}: {parameters / 1e6:.2f} million parameters, context {model.context_tokens}",
        "",
        f"A round reads {model.weight_bytes:,} bytes of weights, float32, and for each row reads and writes "
        f"{model.state_bytes:,} bytes of recurrent state.",
    ]
    log(f"{model.name}: decode rates")
    rates = rates_table(stage, options.runs, new_tokens)
    log(f"{model.name}: prefill")
    prefill = prefill_table(stage, options.runs, length)
    log(f"{model.name}: gaps")
    between = gaps_table(stage, options.runs, length, new_tokens)
    log(f"{model.name}: host")
    host = host_table(stage, options.runs, new_tokens)
    log(f"{model.name}: what the rule costs")
    rule = rule_table(model, options.runs, options.steps)
    for table in (rates, prefill, between, host, rule):
        lines += ["", *table]
    print("\n".join(lines), flush=True)  # what comes after may fail; minutes went into this
    batch_1 = [cell.strip() for cell in rates[2].split("|")[1:-1]]
    prompt_rate = prefill[-1].split("|")[2].strip()
    row = f"| ninfer | {model.name} | {model.weight_bytes:,} | {batch_1[1]} | {batch_1[3]} | {prompt_rate} |"
    return lines, row


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_cpu")
    parser.add_argument("--models", nargs="*", default=["demo", "golden", "wide"], help="or the path of an artifact")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96, help="that are generated in a run")
    parser.add_argument("--prompt", type=int, default=1024, help="tokens of the long prompt")
    parser.add_argument("--steps", type=int, default=40, help="rounds of a run of one form")
    parser.add_argument("--context", type=int, default=2048, help="most tokens of a request")
    parser.add_argument("--cache", type=Path, help="folder for compiled programs; a temporary one by default")
    parser.add_argument("--no-http", action="store_true", help="leave the served process out")
    parser.add_argument("--llama", type=Path, metavar="PYTHON")
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as made:
        options.cache = options.cache or Path(made) / "cache"
        sizes = " ".join(
            f"--{name} {getattr(options, name)}" for name in ("runs", "tokens", "prompt", "steps", "context")
        )
        models = " ".join(options.models)
        where = f"{time.strftime('%Y-%m-%d')}, {machine()}, JAX {jax.__version__}: `--models {models} {sizes}`."
        lines, rows = [where], []
        for name in options.models:
            tables, row = model_tables(load(name, options.context), options)
            lines += ["", *tables]
            rows.append(row)
            if name not in ("golden", "wide") and not options.no_http:
                log(f"{name}: HTTP")
                served_lines = http_lines(
                    artifact_path(name), options.cache / "serve", options.runs, options.tokens, options.context
                )
                lines += ["", *served_lines]
        if options.llama is not None and options.gguf is not None:
            log("llama.cpp")
            lines += ["", "### Beside llama.cpp", "", *llama_table(options.llama, options.gguf, options.runs, rows)]
    print("\n".join(["", "All of it:", "", *lines]))
    if options.write is not None:
        write(options.write, lines, MARKS)


if __name__ == "__main__":
    main(sys.argv[1:])
