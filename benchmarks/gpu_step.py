"""Variants of a whole decode step in turns, on one device: what each kernel asks for ahead of time, and its options.

    python -m benchmarks.gpu_step [--recipe q4 --rows 1 --context 1024 ...] VARIANT ...

A variant is a list of changes with commas, or "-" for none: PRODUCT.PLACE=MIB says how much of a matrix a product asks
for (0: nothing), KERNEL.OPTION=VALUE sets a field of its options, "none" first empties the plan. Kernels: in, attend,
combine, out, gate_up, down, head; "all" stands for every product. Places: out, gate_up, down, next.

    python -m benchmarks.gpu_step - none in.out=16,out.gate_up=0 attend.splits=64,down.warps=8

Random weights of the 27B configuration. All variants are compiled first, then run from equal memory for their logits'
bits, then timed in turns: rounds of chained steps, so that a clock that drifts drifts for all. Prints a line a variant
at once and a table last; JSON goes to $JOB_OUT or $OUT when one is set.
"""

import argparse
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs
import jax
import jax.numpy as jnp
import numpy as np

from kernels_pallas.arrays import Activation, PackedMatrix
from kernels_pallas.paged_attention import triton as attention
from kernels_pallas.paged_attention import triton_combine
from kernels_pallas.paged_attention.tuning import TUNING
from kernels_pallas.quant_matmul import triton as products
from kernels_pallas.quant_matmul.tuning import config_for
from ninfer.engine.bench.ceilings import measure_ceilings
from ninfer.engine.bench.kernels import profile
from ninfer.engine.bench.subject import matrix_formats
from ninfer.engine.bench.traffic import traffic_of
from ninfer.engine.device import DecodeRow, SampleRow
from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.published import PUBLISHED
from ninfer.engine.programs.form import Memory, StepOutput
from ninfer.engine.programs.stacked import Stacked
from ninfer.engine.programs.stacked.random import random_stacked
from ninfer.engine.programs.stacked.reading import MIB, READING, ReadingPlan, Wish
from ninfer.engine.programs.stacked.rows import RowKernels, row_kernels
from ninfer.engine.types import PAGE_TOKENS, Sampling

PLACES = {"in": "mixer_in", "out": "mixer_out", "gate_up": "gate_up", "down": "down", "next": "mixer_in"}
"""Products that ask, and what can be asked for: "next" is the product into the next layer, or the head."""
PRODUCTS = ("in", "out", "gate_up", "down", "head")
KERNELS = (*PRODUCTS, "attend", "combine", "all")
CHECKED_STEPS = 3
WARM_STEPS = 3

Changes: TypeAlias = dict[str, dict[str, int]]
"""Options by kernel"""
Step: TypeAlias = Callable[..., tuple[Memory, StepOutput]]


def say(*words: object) -> None:
    """Print at once: a run may be cut off."""
    print(*words, flush=True)


def read_variant(text: str) -> tuple[ReadingPlan, Changes]:
    """The plan and the options that a variant means.

    Raises:
        ValueError: a kernel that does not exist.
    """
    plan, changes = READING, Changes()
    for part in text.split(","):
        if part == "none":
            plan = ReadingPlan()
        elif part != "-":
            name, _, value = part.partition("=")
            kernel, _, field = name.partition(".")
            if kernel not in KERNELS:
                raise ValueError(f"{part!r} names no kernel; there are {', '.join(KERNELS)}")
            if field in PLACES and kernel in PLACES:
                wishes = {wish.place: wish for wish in getattr(plan, PLACES[kernel])}
                wishes.pop(PLACES[field], None)
                if float(value):
                    wishes[PLACES[field]] = Wish(PLACES[field], int(float(value) * MIB))
                plan = attrs.evolve(plan, **{PLACES[kernel]: tuple(wishes.values())})
            else:
                for each in PRODUCTS if kernel == "all" else (kernel,):
                    changes.setdefault(each, {})[field] = int(value)
    return plan, changes


def kernels_for(text: str) -> RowKernels:
    """The operations of a variant."""
    plan, changes = read_variant(text)

    def product(operation: Callable[..., object], epilogue: str) -> Callable[..., object]:
        def run(x: Activation, matrix: PackedMatrix, *rest: object, **named: object) -> object:
            config = config_for(matrix.format, matrix.n, matrix.k, epilogue)
            config = attrs.evolve(config, **changes.get(product_name(matrix, epilogue), {}))
            return operation(x, matrix, *rest, **named, config=config)

        return run

    def attend(projected: jax.Array, pool, *rest: object, **named: object):  # type: ignore[no-untyped-def]
        tuning = attrs.evolve(TUNING[pool.format], **changes.get("attend", {}))
        return attention.attend_rows(projected, pool, *rest, **named, tuning=tuning)

    def combine(partials, projected: jax.Array, *, out_dtype):  # type: ignore[no-untyped-def]
        tuning = attrs.evolve(TUNING["int8"], **changes.get("combine", {}))
        return Activation(values=triton_combine.combine(partials, projected, out_dtype, tuning=tuning))

    return attrs.evolve(
        row_kernels("triton"),
        project=partial(product(products.project, "plain"), out_dtype=jnp.float32),
        project_gated=product(products.project_gated, "gated"),
        project_residual=product(products.project_residual, "residual"),
        attend_rows=attend,
        combine=combine,
        reading=plan,
    )


def product_name(matrix: PackedMatrix, epilogue: str) -> str:
    """Which product of a layer a matrix belongs to."""
    if epilogue == "gated":
        return "gate_up"
    if epilogue == "residual":
        return "down" if matrix.k > 2 * matrix.n else "out"
    return "head" if matrix.n > 65536 else "in"


@attrs.frozen(kw_only=True)
class Bench:
    """What is the same for all variants."""

    config: TextConfig
    weights: object
    kv_format: str
    rows: int
    context_tokens: int
    steps: int

    def form(self, text: str) -> Stacked:
        """The model with a variant's kernels."""
        return Stacked(self.config, self.weights, kv_format=self.kv_format, impl="triton", kernels=kernels_for(text))

    @property
    def pages(self) -> int:
        """Of one row."""
        return -(-self.context_tokens // PAGE_TOKENS)

    def memory(self) -> Memory:
        """Fresh memory in which each row has pages of its own."""
        form = Stacked(self.config, self.weights, kv_format=self.kv_format, impl="triton")
        memory = form.zero_memory(pages=self.rows * self.pages, slots=self.rows, table_pages=self.pages)
        tables = jnp.arange(self.rows * self.pages, dtype=jnp.int32).reshape(self.rows, self.pages)
        return dataclasses.replace(memory, text=memory.text.with_parts(tables=tables))

    def plan(self, form: Stacked, step: int) -> np.ndarray:
        """Step number `step` of a round: the first feeds a token, the others what was chosen."""
        position = self.context_tokens - self.steps + step
        sample = SampleRow(sampling=Sampling(temperature=0), position=position + 1)
        rows = tuple(
            DecodeRow(
                slot=slot,
                pages=tuple(range(slot * self.pages, (slot + 1) * self.pages)),
                position=position,
                token=None if step else 17 + slot,
                sample=sample,
            )
            for slot in range(self.rows)
        )
        return form.pack_decode(rows, table_pages=self.pages)

    def lower(self, form: Stacked, memory: Memory, plan: np.ndarray) -> jax.stages.Lowered:
        """As `JaxDevice` lowers it."""
        step = partial(form.decode_step, self.config.vocab_size)
        return jax.jit(step, donate_argnums=1).lower(self.weights, memory, plan)


@attrs.define(kw_only=True)
class Case:
    """A variant with its program."""

    text: str
    form: Stacked
    program: Step
    logits: np.ndarray | None = None
    times_s: list[float] = attrs.field(factory=list)


def run_steps(bench: Bench, case: Case, memory: Memory, steps: range) -> tuple[Memory, StepOutput]:
    """Steps one behind the other; waits for the last."""
    plans = [bench.plan(case.form, step) for step in steps]
    for plan in plans:
        memory, output = case.program(bench.weights, memory, plan)
        output.chosen.copy_to_host_async()
    return memory, jax.block_until_ready(output)


def compile_all(bench: Bench, texts: list[str]) -> list[Case]:
    """Lower one after the other, compile in threads meanwhile."""
    memory = jax.eval_shape(bench.memory)
    waiting = []
    with ThreadPoolExecutor(12) as pool:
        for text in texts:
            form = bench.form(text)
            lowered = bench.lower(form, memory, bench.plan(form, 0))
            waiting.append((text, form, pool.submit(lowered.compile)))
        say(f"all {len(texts)} lowered")
        cases = []
        for text, form, program in waiting:
            try:
                cases.append(Case(text=text, form=form, program=program.result()))
            except Exception as error:  # a variant that does not fit must not cost the others their time
                say("FAILED", text, repr(error)[:300])
    return cases


def compare(bench: Bench, cases: list[Case]) -> None:
    """Logits of each variant after a few steps from fresh memory, beside those of the first."""
    fresh = jax.jit(bench.memory)
    for case in cases:
        _, output = run_steps(bench, case, fresh(), range(CHECKED_STEPS))
        case.logits = np.asarray(output.logits)
        first = cases[0].logits
        assert first is not None
        same = np.array_equal(case.logits.view(np.uint32), first.view(np.uint32))
        apart = np.abs(case.logits - first).max() / np.abs(first).max()
        say(f"{'same bits' if same else f'DIFFERS by {apart:.1e}':20s} {case.text}")


def take_turns(bench: Bench, cases: list[Case], rounds: int) -> None:
    """Time a round of each variant, then again from the first."""
    memory = jax.jit(bench.memory)()
    for case in cases:
        memory, _ = run_steps(bench, case, memory, range(WARM_STEPS))
    for _ in range(rounds):
        for case in cases:
            begin_s = time.perf_counter()
            memory, _ = run_steps(bench, case, memory, range(bench.steps))
            case.times_s.append((time.perf_counter() - begin_s) / bench.steps)


def kernels_of(bench: Bench, case: Case) -> dict[str, float]:
    """Microseconds a step of the slowest kernels."""
    memory, _ = run_steps(bench, case, jax.jit(bench.memory)(), range(WARM_STEPS))
    table = profile(case.text, lambda: run_steps(bench, case, memory, range(4)), 4)
    return {f"{row.name} x{row.calls:.0f}": row.step_us / row.calls for row in table.rows[:13]}


def main() -> None:
    """Compile, compare, time, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--base", default="-", help="changes that all variants begin with")
    parser.add_argument("--recipe", default="q4")
    parser.add_argument("--kv-dtype", default="int8")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--kernels", type=int, default=0, help="profile so many of the fastest variants, and the first")
    given = parser.parse_args()
    begin_s = time.perf_counter()
    config = PUBLISHED["27b"]
    weights = jax.block_until_ready(random_stacked(config, matrix_formats(config, given.recipe).__getitem__))
    ceiling = measure_ceilings().read_bytes_per_s
    bench = Bench(
        config=config,
        weights=weights,
        kv_format=given.kv_dtype,
        rows=given.rows,
        context_tokens=given.context,
        steps=given.steps,
    )
    moved = traffic_of(bench.form(given.base)).step_bytes(batch=given.rows, context_tokens=given.context)
    say(
        f"{given.recipe}, KV {given.kv_dtype}, rows {given.rows}, context {given.context}: {moved / 1e9:.2f} GB, "
        f"pure read {ceiling / 1e12:.2f} TB/s = {1e3 * moved / ceiling:.2f} ms ({time.perf_counter() - begin_s:.0f} s)"
    )
    cases = compile_all(bench, [f"{given.base},{text}" for text in given.variants])
    say(f"compiled after {time.perf_counter() - begin_s:.0f} s")
    compare(bench, cases)
    take_turns(bench, cases, given.rounds)
    found = []
    for case in cases:
        case.text = case.text.removeprefix(f"{given.base},")
        median, least = (1e3 * of(case.times_s) for of in (statistics.median, min))
        share = moved / ceiling / (median / 1e3)
        say(f"{median:7.3f} ms, least {least:7.3f}, {100 * share:5.1f} % of pure read   {case.text}")
        found.append({"variant": case.text, "ms": median, "least_ms": least, "share": share})
    say(f"timed after {time.perf_counter() - begin_s:.0f} s")
    order = sorted(range(len(cases)), key=lambda number: found[number]["ms"])
    for number in dict.fromkeys([0, *order][: given.kernels + 1] if given.kernels else []):
        found[number]["kernels_us"] = kernels_of(bench, cases[number])
        say(f"kernels of {cases[number].text} (us each, calls a step):")
        say("  " + ", ".join(f"{name} {us:.2f}" for name, us in found[number]["kernels_us"].items()))
    folder = os.environ.get("JOB_OUT") or os.environ.get("OUT")
    if folder:
        Path(folder, "gpu_step.json").write_text(
            json.dumps({"bytes": moved, "read": ceiling, "found": found}, indent=1)
        )


if __name__ == "__main__":
    main()
