"""The gated delta net over many tokens of one sequence: what prefill runs between the projections.

Shapes and symbols: gdn_step/state.py; the meaning: reference.py.
"""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from kernels_pallas.dispatch import Impl, choose
from kernels_pallas.gdn_chunk.reference import CHUNK_TOKENS, gdn_chunk_reference
from kernels_pallas.gdn_chunk.triton import gdn_chunk_triton
from kernels_pallas.gdn_step.state import GdnState, GdnWeights, sizes_of

__all__ = ["CHUNK_TOKENS", "gdn_chunk"]


def gdn_chunk(
    projected: jax.Array,
    scores: jax.Array,
    state: GdnState,
    weights: GdnWeights,
    layer: jax.Array,
    slot: jax.Array,
    start: jax.Array,
    count: jax.Array,
    *,
    eps: float,
    out_dtype: DTypeLike,
    impl: Impl = "auto",
) -> tuple[jax.Array, GdnState]:
    """The first `count` of T tokens at positions start ...: outputs before out_proj, and the slot's state after them.

    A row's bits depend neither on T nor on how the prompt was cut, as long as it was cut on the absolute grid of 64
    tokens. At start 0 the sequence starts from zero whatever the slot holds. Rows from `count` on come out as 0.

    Args:
        projected: float32, float16 or bfloat16 [T, C + Hv dv], the convolution's input, then the output gate; T is a
            multiple of 64.
        scores: float32 [T, 2 Hv], what decay is made of, before bias and softplus, then what the write strength is made
            of, before the sigmoid.
        state: of all layers and slots.
        weights: of all layers (its `ab` is not read).
        layer: int32 [1].
        slot: int32 [1] or scalar.
        start: int32 [1] or scalar, a multiple of 64.
        count: int32 [1] or scalar, 0 to T.
        eps: of the output norm.
        out_dtype: of the output.

    Returns:
        `out_dtype` [T, Hv dv], and the changed state.

    Raises:
        ValueError: an implementation that does not exist, or sizes that do not fit.
    """
    sizes = sizes_of(state)
    if projected.shape[0] % CHUNK_TOKENS:
        raise ValueError(f"{projected.shape[0]} tokens are no multiple of {CHUNK_TOKENS}")
    wanted = sizes.channels + sizes.values, 2 * sizes.value_heads
    if (projected.shape[-1], scores.shape[-1]) != wanted:
        raise ValueError(
            f"projected and scores have {projected.shape[-1]} and {scores.shape[-1]} columns, not "
            f"{wanted[0]} and {wanted[1]}"
        )
    chunk = choose(impl, {"reference": gdn_chunk_reference, "triton": gdn_chunk_triton})
    return chunk(
        projected, scores, state, weights, layer, slot, start, count, eps=eps, out_dtype=jnp.dtype(out_dtype)
    )  # fmt: skip
