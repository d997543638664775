"""The form made for a GPU: stacked weights, kernels, one CUDA graph a decode round.

Joins the trunks of this package with plans and sampling; see `programs/form.py` for what a form is. With
`impl="reference"` the same programs run anywhere, slowly: that is how they are tested. Decode plans are narrow, since
page tables live on the device (`memory.py`): a row brings the page of its own position alone.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from kernels_pallas.chunk_attention import DEFAULT_SPLIT_WORKSPACE_BYTES
from kernels_pallas.dispatch import Impl
from kernels_pallas.quant_matmul import activation_dtype, project, start
from kernels_pallas.sampling import best_tokens
from ninfer.engine.device import DecodeRow, PrefillUnit
from ninfer.engine.model.config import TextConfig
from ninfer.engine.programs import plan as plans
from ninfer.engine.programs.form import Memory, StepOutput
from ninfer.engine.programs.stacked.memory import StackedState, zero_stacked_state
from ninfer.engine.programs.stacked.prompt import Chunk, run_chunk
from ninfer.engine.programs.stacked.rows import RESIDUAL_SHIFT, RowKernels, Rows, number, row_kernels, run_rows
from ninfer.engine.programs.stacked.weights import StackedWeights
from ninfer.engine.programs.tokens import feed, finish_chunk, finish_round
from ninfer.engine.sampling.sampler import Chosen, SamplerRows, draw
from ninfer.engine.types import MAX_CANDIDATES, PAGE_TOKENS

LEAST_CHUNK_TOKENS = 64
BUCKET_STEP = 4
"""Prefill programs are compiled for 64 tokens, four times that and so on, up to the chunk: padding costs time."""


def chunk_buckets(chunk_tokens: int) -> tuple[int, ...]:
    """64, 256, 1024 ... and the chunk itself."""
    sizes, size = [], LEAST_CHUNK_TOKENS
    while size < chunk_tokens:
        sizes.append(size)
        size *= BUCKET_STEP
    return (*sizes, chunk_tokens)


class Stacked:
    """A text model with packed weights."""

    def __init__(
        self,
        config: TextConfig,
        weights: StackedWeights,
        *,
        kv_format: str = "bf16",
        split_workspace_bytes: int = DEFAULT_SPLIT_WORKSPACE_BYTES,
        impl: Impl = "auto",
        kernels: RowKernels | None = None,
    ) -> None:
        """`kv_format`: a storage format of `kernels_pallas.kv_cache`; `kernels`: others for decode rounds, to try.

        weights: or their shapes, for a device that loads them itself;
        split_workspace_bytes: see `kernels_pallas.chunk_attention.attend_chunk`; changes no bit.
        """
        self._config = config
        self._weights = weights
        self._kv_format = kv_format
        self._split_workspace_bytes = split_workspace_bytes
        self._impl: Impl = impl
        self._kernels = kernels or row_kernels(impl)

    @property
    def vocab_size(self) -> int:
        """Rows of the logits."""
        return self._config.vocab_size

    @property
    def activation_bits(self) -> int:
        """Bits of what flows between products."""
        return 16

    @property
    def weights(self) -> StackedWeights:
        """The weights as the steps take them."""
        return self._weights

    def zero_memory(self, *, pages: int, slots: int, table_pages: int) -> Memory:
        """Fresh memory."""
        return Memory(
            text=zero_stacked_state(
                self._config, kv_format=self._kv_format, pages=pages, slots=slots, table_pages=table_pages
            ),
            last_token=jnp.zeros((slots,), jnp.int32),
            counts=jnp.zeros((slots, self._config.vocab_size), jnp.int32),
        )

    def chunk_buckets(self, chunk_tokens: int) -> tuple[int, ...]:
        """See `chunk_buckets`."""
        return chunk_buckets(chunk_tokens)

    def pack_prefill(self, unit: PrefillUnit, *, table_pages: int, tokens: int) -> np.ndarray:
        """int32 [columns], the whole page table in it."""
        return plans.pack_prefill(unit, pages=table_pages, tokens=tokens)

    def pack_decode(self, rows: tuple[DecodeRow, ...], *, table_pages: int) -> np.ndarray:
        """int32 [rows, columns], one page a row."""
        return plans.pack_decode_page(rows, pages=table_pages)

    def prefill_step(
        self, used_tokens: int, table_pages: int, weights: StackedWeights, memory: Memory, plan: jax.Array
    ) -> tuple[Memory, StepOutput]:
        """One prefill unit."""
        unit = plans.unpack_prefill(plan, pages=table_pages)
        slot, state = unit.chunk.slot, memory.text
        state = state.with_parts(tables=state.tables.at[slot].set(unit.chunk.pages, mode="drop"))
        chunk = Chunk(slot=slot, pages=unit.chunk.pages, start=unit.chunk.start, length=unit.chunk.length)
        residual, state = run_chunk(
            self._config, self._impl, weights, state, chunk, unit.tokens, self._split_workspace_bytes
        )
        last = lax.dynamic_slice_in_dim(residual, chunk.length - 1, 1)
        return finish_chunk(
            memory, state, unit, last, partial(self._logits, weights), partial(self._choose, used_tokens)
        )

    def _choose(
        self, used_tokens: int, scores: jax.Array, counts: jax.Array, slots: jax.Array, sampler: SamplerRows
    ) -> Chosen:
        """One token per row of scores [M, V], with the counts [slots, V] of its slot: what `choose` does, by a kernel.

        XLA would sort the whole vocabulary.
        """
        used = min(used_tokens, scores.shape[-1])
        best = best_tokens(
            scores,
            counts,
            jnp.where(slots < counts.shape[0], slots, -1),
            sampler.presence_penalty,
            sampler.frequency_penalty,
            used_tokens=used,
            candidates=min(MAX_CANDIDATES, used),
            impl=self._impl,
        )
        return draw(best.values, best.ids, best.faulty, sampler)

    def _logits(self, weights: StackedWeights, residual: jax.Array) -> jax.Array:
        """Residual float32 [M, H] behind the last layer -> float32 [M, V]."""
        inner = start(
            residual,
            weights.gains,
            number(2 * self._config.num_layers),
            out_dtype=activation_dtype(weights.head.format),
            shift=RESIDUAL_SHIFT,
            eps=self._config.rms_norm_eps,
        )
        return project(inner, weights.head, number(0), impl=self._impl)

    def decode_step(
        self, used_tokens: int, weights: StackedWeights, memory: Memory, plan: jax.Array
    ) -> tuple[Memory, StepOutput]:
        """One decode round: feed a token per row, choose the next."""
        unit = plans.unpack_decode(plan)
        state: StackedState = memory.text
        slots = unit.rows.slots  # beyond the pool for padding
        here = unit.rows.positions // PAGE_TOKENS
        tables = state.tables.at[slots, here].set(unit.rows.pages[:, 0], mode="drop")
        memory, fed = feed(memory, unit)
        real = slots < state.tables.shape[0]
        rows = Rows(
            slots=jnp.where(real, slots, -1),
            positions=jnp.where(real, unit.rows.positions, -1),
            tables=tables[slots],
        )
        scores, state = run_rows(self._config, self._kernels, weights, state.with_parts(tables=tables), rows, fed)
        return finish_round(memory, state, unit, scores, partial(self._choose, used_tokens))
