"""The form with an array for each tensor: XLA makes the kernels, so it runs on any device and is the CPU's own.

Its steps are in `steps.py`, its plans in `plan.py`, where its weights lie in `stored_weights.py`. Invariant: a row's
bits depend on nothing but the row (architecture, rule 8).
"""

import jax
import numpy as np

from ninfer.engine.device import DecodeRow, PrefillUnit
from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.weights import TextWeights
from ninfer.engine.programs import plan as plans
from ninfer.engine.programs.form import Memory, StepOutput
from ninfer.engine.programs.steps import decode_step, prefill_step, zero_memory
from ninfer.engine.programs.stored_weights import StoredWeights, store


class PerLayer:
    """A text model as it is computed on the CPU, and where its weights have no layout made for kernels."""

    def __init__(self, config: TextConfig, weights: TextWeights) -> None:
        """What `weights` holds may be dropped afterwards."""
        self._config = config
        self._weights = store(weights)

    @property
    def vocab_size(self) -> int:
        """Rows of the logits."""
        return self._config.vocab_size

    @property
    def activation_bits(self) -> int:
        """Bits of what flows between products."""
        return 32

    @property
    def weights(self) -> StoredWeights:
        """The weights as the steps take them."""
        return self._weights

    def zero_memory(self, *, pages: int, slots: int, table_pages: int) -> Memory:
        """Fresh memory. Page tables travel with each plan."""
        return zero_memory(self._config, pages=pages, slots=slots)

    def chunk_buckets(self, chunk_tokens: int) -> tuple[int, ...]:
        """One program: it loops over as many tiles as a chunk has."""
        return (chunk_tokens,)

    def pack_prefill(self, unit: PrefillUnit, *, table_pages: int, tokens: int) -> np.ndarray:
        """int32 [columns]."""
        return plans.pack_prefill(unit, pages=table_pages, tokens=tokens)

    def pack_decode(self, rows: tuple[DecodeRow, ...], *, table_pages: int) -> np.ndarray:
        """int32 [rows, columns]."""
        return plans.pack_decode(rows, pages=table_pages)

    def prefill_step(
        self, used_tokens: int, table_pages: int, weights: StoredWeights, memory: Memory, plan: jax.Array
    ) -> tuple[Memory, StepOutput]:
        """One prefill unit."""
        return prefill_step(self._config, used_tokens, table_pages, weights, memory, plan)

    def decode_step(
        self, used_tokens: int, weights: StoredWeights, memory: Memory, plan: jax.Array
    ) -> tuple[Memory, StepOutput]:
        """One decode round."""
        return decode_step(self._config, used_tokens, weights, memory, plan)
