"""What a device needs of a model: its weights and memory as pytrees, and the steps that get compiled.

There are two forms. `PerLayer` has an array for each tensor and lets XLA make the kernels; it runs anywhere. `Stacked`
has one array for each kind of tensor and calls the kernels of `kernels_pallas`; it is made for a GPU. The device does
not know which one it drives. A step is traced as a function of (weights, memory, plan); the memory is donated.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import numpy as np

from ninfer.engine.device import DecodeRow, PrefillUnit

Tree: TypeAlias = Any
"""A pytree of arrays whose structure only the form knows."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Memory:
    """Everything that lives on the device between units, weights apart."""

    text: Tree
    """What the trunk remembers; the form's own"""
    last_token: jax.Array
    """int32 [slots]: the token chosen last in the slot, not fed yet"""
    counts: jax.Array
    """int32 [slots, V]: how often each token was generated and fed"""


class StepOutput(NamedTuple):
    """What a unit leaves to read. R is 1 for a prefill unit."""

    chosen: jax.Array
    """int32 [2, R]: tokens, then 1 for rows that were faulty"""
    logits: jax.Array
    """float32 [R, V], before penalties; zeros when nothing was sampled"""


class Form(Protocol):
    """One model in one way to run it."""

    @property
    def vocab_size(self) -> int:
        """Rows of the logits."""
        ...

    @property
    def activation_bits(self) -> int:
        """Bits of what flows between products: 32 or 16. Tells how far two ways to the same token may be apart."""
        ...

    @property
    def weights(self) -> Tree:
        """The weights as the steps take them, or their shapes where they are still to be loaded."""
        ...

    def zero_memory(self, *, pages: int, slots: int, table_pages: int) -> Memory:
        """Fresh memory of `pages` pages and `slots` slots, for page tables of `table_pages`."""
        ...

    def chunk_buckets(self, chunk_tokens: int) -> tuple[int, ...]:
        """Tokens that prefill programs are compiled for, ascending; the last one is `chunk_tokens`."""
        ...

    def pack_prefill(self, unit: PrefillUnit, *, table_pages: int, tokens: int) -> np.ndarray:
        """The plan of a prefill unit for the program of `tokens` tokens, int32; its shape depends on nothing else."""
        ...

    def pack_decode(self, rows: tuple[DecodeRow, ...], *, table_pages: int) -> np.ndarray:
        """The plan of a decode round, int32; its shape depends on the number of rows alone."""
        ...

    def prefill_step(
        self, used_tokens: int, table_pages: int, weights: Tree, memory: Memory, plan: jax.Array
    ) -> tuple[Memory, StepOutput]:
        """One prefill unit."""
        ...

    def decode_step(
        self, used_tokens: int, weights: Tree, memory: Memory, plan: jax.Array
    ) -> tuple[Memory, StepOutput]:
        """One decode round."""
        ...
