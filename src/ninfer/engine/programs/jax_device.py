"""The `Device` port with JAX: memory that is allocated once, programs that are compiled before the first unit.

Knows arrays and programs; knows no request and decides nothing. Invariants: after `prepare` only compiled programs are
called, so nothing traces or compiles; memory has one owner, is donated to every call and taken back from it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs
import jax
import numpy as np

from ninfer.engine.cache import pages_for
from ninfer.engine.device import DecodeRow, PrefillUnit, SampleRow, UnitResult
from ninfer.engine.model.trunk import NOWHERE
from ninfer.engine.programs.compile_cache import use_compile_cache
from ninfer.engine.programs.compiling import Built, Source, build, threads_here
from ninfer.engine.programs.crew import Crew
from ninfer.engine.programs.form import Form, Memory, StepOutput, Tree
from ninfer.engine.types import PAGE_TOKENS, Sampling

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a program's name, how many are done and how many there are."""

Fit: TypeAlias = Callable[[int], int]
"""Takes the workspace of the compiled programs in bytes, gives the pages that the pool may have."""

Program: TypeAlias = Callable[[Tree, Memory, np.ndarray], tuple[Memory, StepOutput]]

Step: TypeAlias = Callable[[Tree, Memory, jax.Array], tuple[Memory, StepOutput]]
"""What a program is traced from."""


@attrs.frozen(kw_only=True)
class ProgramFacts:
    """What a compilation came to."""

    name: str
    compile_s: float
    """Its own lowering and compiling; programs are compiled side by side, so the sum is more than the wait for all."""
    workspace_bytes: int
    """What the program allocates while it runs, its results included."""
    aliased_bytes: int
    """What it changes in place: all of the memory, or a call would copy some of it."""


_IDLE_UNIT = PrefillUnit(slot=NOWHERE, pages=(NOWHERE,), start=0, tokens=(0,))
"""A unit that would change nothing: it gives a plan its shape."""


def _idle_rows(count: int) -> tuple[DecodeRow, ...]:
    sample = SampleRow(sampling=Sampling(temperature=0), position=0)
    return (DecodeRow(slot=NOWHERE, pages=(NOWHERE,), position=0, token=0, sample=sample),) * count


def _silent(name: str, done: int, total: int) -> None:
    """The progress of who does not want to know."""


@attrs.frozen
class JaxPending:
    """A dispatched unit, with its logits for tests and self-tests."""

    output: StepOutput
    sampled: bool

    def read(self) -> UnitResult:
        """Wait for the unit and give its result. Raises what the device raised."""
        tokens, faulty = np.asarray(self.output.chosen)
        if not self.sampled:
            return UnitResult(())
        return UnitResult(tuple(tokens.tolist()), frozenset(np.flatnonzero(faulty).tolist()))

    def read_logits(self) -> np.ndarray:
        """float32 [rows, V] before penalties: the rows that the tokens were chosen from. Waits as `read` does."""
        return np.asarray(self.output.logits)[: None if self.sampled else 0]


class JaxDevice:
    """One text model on the default JAX device."""

    def __init__(
        self,
        form: Form,
        *,
        lanes: int,
        total_pages: int,
        prefill_chunk_tokens: int,
        max_context_tokens: int,
        used_tokens: int | None = None,
        compile_cache: Path | None = None,
        progress: Progress = _silent,
        fit: Fit | None = None,
        decode_ahead_of_time: bool = True,
        decode_batches: Sequence[int] | None = None,
        prefill_sizes: tuple[int, ...] | None = None,
        compile_threads: int | None = None,
        load: Callable[[], Tree] | None = None,
    ) -> None:
        """Nothing is allocated or compiled before `prepare`.

        Args:
            lanes: slots, and rows of the widest decode round.
            total_pages: pages of the KV pool, 64 tokens each.
            prefill_chunk_tokens: most tokens of one prefill unit, a multiple of 64.
            max_context_tokens: longest context of one lane; fixes the length of page tables.
            used_tokens: ids from here on are vocabulary rows without a token and are never chosen.
            compile_cache: private folder for compiled programs.
            fit: last word on the pool's size, once the programs' workspace is known; it may raise.
            decode_ahead_of_time: without it decode goes through JAX's own dispatch at every call: same bits, slower,
                and its workspace is not known to `fit`.
            decode_batches: numbers of rows that decode programs are compiled for; without it 1 to `lanes`, as serving
                needs them.
            prefill_sizes: tokens that prefill programs are compiled for, ascending, the last of them
                `prefill_chunk_tokens`; without it the form's own choice.
            compile_threads: programs that are compiled side by side; without it one for each core.
            load: gives the weights, where `form` has their shapes alone; called while programs are compiled.
        """
        if prefill_chunk_tokens < PAGE_TOKENS or prefill_chunk_tokens % PAGE_TOKENS:
            raise ValueError(f"prefill_chunk_tokens={prefill_chunk_tokens} is no positive multiple of {PAGE_TOKENS}")
        if decode_batches is not None and not all(1 <= rows <= lanes for rows in decode_batches):
            raise ValueError(f"decode_batches={tuple(decode_batches)} are not all within 1 and lanes={lanes}")
        if prefill_sizes is not None and (
            sorted(set(prefill_sizes)) != list(prefill_sizes) or prefill_sizes[-1:] != (prefill_chunk_tokens,)
        ):
            raise ValueError(f"prefill_sizes={prefill_sizes} do not ascend to {prefill_chunk_tokens}")
        for name, value in (("lanes", lanes), ("total_pages", total_pages), ("max_context_tokens", max_context_tokens)):
            if value < 1:
                raise ValueError(f"{name}={value} is below 1")
        self._form = form
        self._lanes = lanes
        self._total_pages = total_pages
        self._chunk_tokens = prefill_chunk_tokens
        self._table_pages = pages_for(max_context_tokens)
        self._used_tokens = form.vocab_size if used_tokens is None else min(used_tokens, form.vocab_size)
        self._compile_cache = compile_cache
        self._progress = progress
        self._fit = fit
        self._decode_ahead_of_time = decode_ahead_of_time
        self._prefill_sizes = form.chunk_buckets(prefill_chunk_tokens) if prefill_sizes is None else prefill_sizes
        self._decode_batches = range(1, lanes + 1) if decode_batches is None else tuple(decode_batches)
        self._compile_threads = threads_here() if compile_threads is None else compile_threads
        self._load = load
        self._weights: Tree = None
        self._compilations = 0
        self._facts: dict[str, ProgramFacts] = {}
        self._memory: Memory | None = None
        self._allocate: Callable[[], Memory] | None = None
        self._prefill: dict[int, Program] = {}  # most tokens -> program, ascending
        self._decode: dict[int, Program] = {}  # rows -> program

    @property
    def total_pages(self) -> int:
        """Pages of the KV pool."""
        return self._total_pages

    @property
    def activation_bits(self) -> int:
        """Bits of what flows between the model's products."""
        return self._form.activation_bits

    @property
    def total_slots(self) -> int:
        """Recurrent-state slots: one per lane."""
        return self._lanes

    @property
    def compilations(self) -> int:
        """Programs compiled so far. Constant once `prepare` has returned."""
        return self._compilations

    @property
    def programs(self) -> tuple[ProgramFacts, ...]:
        """What was compiled, in that order."""
        return tuple(self._facts.values())

    @property
    def workspace_bytes(self) -> int:
        """What the most demanding program allocates while it runs; 0 before `prepare`."""
        return max((facts.workspace_bytes for facts in self._facts.values()), default=0)

    def buffers(self) -> tuple[tuple[int, int], ...]:
        """Address and bytes of each array of the memory: the same as long as the device lives. For self-tests."""
        return tuple((leaf.unsafe_buffer_pointer(), leaf.nbytes) for leaf in jax.tree.leaves(self._memory))

    def prepare(self) -> None:
        """Load the weights and compile every program, then allocate the memory. Blocks; called once, before any unit.

        Raises what loading, compiling and `fit` raise, when none of them is at work any more.
        """
        if self._memory is not None:
            raise RuntimeError("the device is prepared already")
        if self._compile_cache is not None:
            use_compile_cache(self._compile_cache)
        total = len(self._prefill_sizes) + len(self._decode_batches) + 1
        with Crew(1, name="ninfer-loader") as loader:
            weights = loader.give(self._form_weights)
            self._compile_programs(total)
            self._weights = weights.result()
        pages = self._total_pages if self._fit is None else self._fit(self.workspace_bytes)
        if pages != self._total_pages:
            self._total_pages = pages
            self._compile_programs(total)  # the pool's size is part of their shapes
        self._progress("memory", total - 1, total)
        self._allocate = jax.jit(self._make_memory()).lower().compile()
        self._compilations += 1
        self._memory = jax.block_until_ready(self._allocate())
        if not self._decode_ahead_of_time:
            self._compile_by_calls()
        self._progress("ready", total, total)

    def _form_weights(self) -> Tree:
        return self._form.weights if self._load is None else self._load()

    def _make_memory(self) -> Callable[[], Memory]:
        return partial(
            self._form.zero_memory, pages=self._total_pages, slots=self._lanes, table_pages=self._table_pages
        )

    def _compile_programs(self, total: int) -> None:
        memory = jax.eval_shape(self._make_memory())
        prefill = partial(self._form.prefill_step, self._used_tokens, self._table_pages)
        decode = partial(self._form.decode_step, self._used_tokens)
        sources = [
            self._source(f"prefill {tokens}", prefill, memory, self._pack_prefill(_IDLE_UNIT, tokens))
            for tokens in self._prefill_sizes
        ]
        if self._decode_ahead_of_time:
            sources += [
                self._source(f"decode {rows}", decode, memory, self._pack_decode(_idle_rows(rows)))
                for rows in self._decode_batches
            ]
        built = build(
            sources, threads=self._compile_threads, waiting=lambda name, done: self._progress(name, done, total)
        )
        self._compilations += len(built)
        self._facts = {made.name: _program_facts(made) for made in built}
        programs: list[Program] = [made.program for made in built]
        prefills = len(self._prefill_sizes)
        self._prefill = dict(zip(self._prefill_sizes, programs[:prefills], strict=True))
        if self._decode_ahead_of_time:
            self._decode = dict(zip(self._decode_batches, programs[prefills:], strict=True))
        else:
            self._decode = {rows: jax.jit(decode, donate_argnums=1) for rows in self._decode_batches}

    def _compile_by_calls(self) -> None:
        """Let JAX compile the decode programs now: by rounds over slots beyond the memory, which change nothing."""
        for rows, program in self._decode.items():
            self._dispatch(program, self._pack_decode(_idle_rows(rows)), sampled=True).read()
            self._compilations += 1

    def _pack_prefill(self, unit: PrefillUnit, tokens: int) -> np.ndarray:
        return self._form.pack_prefill(unit, table_pages=self._table_pages, tokens=tokens)

    def _pack_decode(self, rows: tuple[DecodeRow, ...]) -> np.ndarray:
        return self._form.pack_decode(rows, table_pages=self._table_pages)

    def prefill(self, unit: PrefillUnit) -> JaxPending:
        """Dispatch one prefill chunk, in the smallest program that takes it."""
        if not self._prefill:
            raise RuntimeError("the device is not prepared")
        count = len(unit.tokens)
        if not count or unit.start % PAGE_TOKENS:
            raise ValueError(f"a prefill unit of {count} tokens cannot start at {unit.start}")
        if count > self._chunk_tokens:
            raise ValueError(f"a unit has {count} tokens, but its program has room for {self._chunk_tokens}")
        bucket = next(tokens for tokens in self._prefill if count <= tokens)
        return self._dispatch(self._prefill[bucket], self._pack_prefill(unit, bucket), sampled=unit.sample is not None)

    def decode(self, rows: tuple[DecodeRow, ...]) -> JaxPending:
        """Dispatch one decode round over `rows`, 1 to the number of lanes; slots are distinct."""
        return self._dispatch(self._decode[len(rows)], self._pack_decode(rows), sampled=True)

    def recover(self) -> bool:
        """After a unit has raised: whether it took the memory with it. If so, there is fresh memory now."""
        if self._allocate is None:
            raise RuntimeError("the device is not prepared")
        if self._memory is not None and _is_whole(self._memory):
            return False
        self._memory = None  # before there is another one: both would not fit
        self._memory = jax.block_until_ready(self._allocate())
        return True

    def _dispatch(self, program: Program, plan: np.ndarray, *, sampled: bool) -> JaxPending:
        if self._memory is None:
            raise RuntimeError("the device is not prepared, or a failed unit took its memory")
        memory, self._memory = self._memory, None  # donated: nobody may look at it again
        try:
            self._memory, output = program(self._weights, memory, plan)
        except BaseException:
            if not any(leaf.is_deleted() for leaf in jax.tree.leaves(memory)):  # refused before it was donated
                self._memory = memory
            raise
        output.chosen.copy_to_host_async()
        return JaxPending(output, sampled)

    def _source(self, name: str, step: Step, memory: Memory, plan: np.ndarray) -> Source[jax.stages.Compiled]:
        return Source(name, lambda: jax.jit(step, donate_argnums=1).lower(self._form.weights, memory, plan))


def _is_whole(memory: Memory) -> bool:
    """Whether every unit that has changed `memory` went well. Waits for them."""
    if any(leaf.is_deleted() for leaf in jax.tree.leaves(memory)):
        return False
    try:
        jax.block_until_ready(memory)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _program_facts(built: Built[jax.stages.Compiled]) -> ProgramFacts:
    sizes, aliased, workspace = built.program.memory_analysis(), 0, 0
    if sizes is not None:  # a backend that says
        aliased = sizes.alias_size_in_bytes
        workspace = sizes.temp_size_in_bytes + sizes.output_size_in_bytes - aliased
    return ProgramFacts(name=built.name, compile_s=built.compile_s, workspace_bytes=workspace, aliased_bytes=aliased)
