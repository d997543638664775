"""The benchmark's order of events: ceilings, then one subject after the other, each on a device of its own.

The device is the one that serves, with programs for the batches that are asked for. Nothing of a subject is left when
the next one is made: two may not fit beside each other.
"""

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs
import jax

from ninfer.engine.bench.ceilings import measure_ceilings
from ninfer.engine.bench.kernels import profile
from ninfer.engine.bench.report import DecodePoint, KernelTable, PrefillPoint, ProgramRow, Report, SubjectReport
from ninfer.engine.bench.rounds import Timer
from ninfer.engine.bench.subject import memory_of, random_form
from ninfer.engine.bench.traffic import parameters_of, product_flops, traffic_of
from ninfer.engine.cache import pages_for
from ninfer.engine.memory import PoolRequest, TooLittleMemory, plan_memory
from ninfer.engine.model.config import TextConfig
from ninfer.engine.programs.footprint import device_kind, free_device_bytes
from ninfer.engine.programs.form import Form
from ninfer.engine.programs.jax_device import JaxDevice
from ninfer.engine.types import PAGE_TOKENS

Tell: TypeAlias = Callable[[str], None]
"""Called with what is done next."""

PROFILED_STEPS = 16


class CannotMeasure(Exception):
    """What was asked for cannot be measured on this device. One line."""


@attrs.frozen(kw_only=True)
class Wish:
    """What to measure of each subject."""

    batches: tuple[int, ...] = attrs.field(validator=attrs.validators.min_len(1))
    contexts: tuple[int, ...]
    """Lengths in tokens at which decode rounds are timed."""
    prompts: tuple[int, ...]
    """Lengths in tokens of the prompts that are prefilled."""
    chunk_tokens: int
    """Most tokens of one prefill unit, a multiple of 64."""
    steps: int
    runs: int
    kernels: bool = False
    """Also tell where the device's time goes."""

    @property
    def longest_tokens(self) -> int:
        """What a page table must reach."""
        return max((*self.contexts, *self.prompts, PAGE_TOKENS))

    @property
    def pool_pages(self) -> int:
        """What all rows of the most demanding point take together."""
        return max(
            max((batch * pages_for(context) for batch in self.batches for context in self.contexts), default=1),
            pages_for(self.longest_tokens),
        )


@attrs.frozen(kw_only=True)
class Given:
    """What is measured: a model's shape, under a name, in recipes and formats of keys and values."""

    name: str
    config: TextConfig
    subjects: tuple[tuple[str, str], ...]
    """(recipe, KV format) of each subject"""
    command: str
    """As it was asked for, for whoever reads the report."""
    program_cache: Path | None = None


def run_benchmark(given: Given, wish: Wish, tell: Tell, done: Callable[[Report], None]) -> Report:
    """Measure everything; `done` gets what there is after each subject, since the next one may fail.

    Raises:
        CannotMeasure: a subject does not exist or does not fit.
    """
    for recipe, kv_format in given.subjects:
        check_memory(given.config, recipe, kv_format, wish, free_device_bytes())
    device, _ = device_kind()
    tell("ceilings")
    report = Report(
        date=time.strftime("%Y-%m-%d"),
        device=device,
        jax_version=jax.__version__,
        command=given.command,
        config=given.name,
        parameters=parameters_of(given.config),
        ceilings=measure_ceilings(),
        subjects=(),
    )
    done(report)
    for recipe, kv_format in given.subjects:
        found = measure_subject(given, recipe, kv_format, wish, tell)
        report = attrs.evolve(report, subjects=(*report.subjects, found))
        done(report)
        gc.collect()
    return report


def check_memory(config: TextConfig, recipe: str, kv_format: str, wish: Wish, have_bytes: int | None) -> None:
    """Compare what a subject needs with what is free, before anything is made.

    Raises:
        CannotMeasure: it does not exist, or does not fit.
    """
    try:
        needs = memory_of(
            config,
            recipe,
            kv_format,
            lanes=max(wish.batches),
            longest_tokens=wish.longest_tokens,
            chunk_tokens=wish.chunk_tokens,
        )
        plan_memory(needs, PoolRequest(least_pages=wish.pool_pages, most_pages=wish.pool_pages), have_bytes)
    except TooLittleMemory as error:
        remedy = "less is needed with another --config or --recipe, a smaller --batch or shorter contexts"
        raise CannotMeasure(f"{recipe}, KV {kv_format}: {error}; {remedy}") from error
    except ValueError as error:
        raise CannotMeasure(f"{recipe}, KV {kv_format}: {error}") from error


def measure_subject(given: Given, recipe: str, kv_format: str, wish: Wish, tell: Tell) -> SubjectReport:
    """Make, compile and time one subject.

    Raises:
        CannotMeasure: it does not exist, or the device has too little memory for it.
    """
    name, begin_s = f"{recipe}, KV {kv_format}", time.perf_counter()
    try:
        tell(f"{name}: weights")
        form = random_form(given.config, recipe, kv_format)
        device = _device(form, given, wish, lambda program: tell(f"{name}: {program}"))
        device.prepare()
        ready_s = time.perf_counter() - begin_s
        timer = Timer(
            device=device,
            clock=time.perf_counter,
            runs=wish.runs,
            steps=wish.steps,
            used_tokens=given.config.vocab_size,
        )
        return SubjectReport(
            recipe=recipe,
            kv_format=kv_format,
            ready_s=ready_s,
            traffic=traffic_of(form),
            decode=_decode(timer, wish, lambda point: tell(f"{name}: {point}")),
            prefill=_prefill(timer, wish, given.config, lambda point: tell(f"{name}: {point}")),
            kernels=_kernels(timer, wish) if wish.kernels else (),
            programs=tuple(ProgramRow(**attrs.asdict(facts)) for facts in device.programs),
        )
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        raise CannotMeasure(f"{name}: {str(error).strip().splitlines()[0]}") from error


def _device(form: Form, given: Given, wish: Wish, tell: Tell) -> JaxDevice:
    return JaxDevice(
        form,
        lanes=max(wish.batches),
        total_pages=wish.pool_pages,
        prefill_chunk_tokens=wish.chunk_tokens,
        max_context_tokens=wish.longest_tokens,
        compile_cache=given.program_cache,
        progress=lambda program, done, total: tell(f"{program} ({done} of {total})"),
        decode_batches=wish.batches,
        # The small one seats rows; what lies between is for prompts that do not fill a chunk.
        prefill_sizes=tuple(sorted({PAGE_TOKENS, wish.chunk_tokens})),
    )


def _decode(timer: Timer, wish: Wish, tell: Tell) -> tuple[DecodePoint, ...]:
    points = []
    for batch in wish.batches:
        for context in wish.contexts:
            tell(f"decode {batch} x {context}")
            points.append(timer.decode(batch=batch, context_tokens=context))
    return tuple(points)


def _prefill(timer: Timer, wish: Wish, config: TextConfig, tell: Tell) -> tuple[PrefillPoint, ...]:
    points = []
    for tokens in wish.prompts:
        tell(f"prefill {tokens}")
        flops = product_flops(config, tokens)
        points.append(timer.prefill(tokens=tokens, chunk_tokens=wish.chunk_tokens, flops=flops))
    return tuple(points)


def _kernels(timer: Timer, wish: Wish) -> tuple[KernelTable, ...]:
    """The first batch at the shortest context, the last batch at the longest one, and the first prompt."""
    tables = []
    points: Sequence[tuple[int, int]] = ()
    if wish.contexts:
        points = [(wish.batches[0], min(wish.contexts)), (wish.batches[-1], max(wish.contexts))]
    short = attrs.evolve(timer, steps=min(timer.steps, PROFILED_STEPS))
    for batch, context in dict.fromkeys(points):
        rounds = partial(short.run_rounds, short.take_seats(batch, context), context)
        rounds()
        tables.append(profile(f"decode, {batch} rows at {context:,} tokens", rounds, short.steps))
    for tokens in wish.prompts[:1]:
        prompt = partial(timer.run_prompt, tokens, wish.chunk_tokens)
        tables.append(profile(f"prefill of {tokens:,} tokens", prompt, 1))
    return tuple(tables)
