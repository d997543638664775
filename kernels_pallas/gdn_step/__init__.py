"""The gated delta net's step for one token of each row: convolution, gates, recurrence and gated norm in one kernel.

Everything between the projections of a delta-net layer. Shapes and symbols: state.py; the meaning: reference.py.
"""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from kernels_pallas.arrays import Activation
from kernels_pallas.dispatch import Impl, choose
from kernels_pallas.gdn_step.reference import gdn_step_reference
from kernels_pallas.gdn_step.state import CONV_TAPS, GdnSizes, GdnState, GdnWeights, sizes_of, zero_state
from kernels_pallas.gdn_step.triton import gdn_step_triton

__all__ = ["CONV_TAPS", "GdnSizes", "GdnState", "GdnWeights", "gdn_step", "sizes_of", "zero_state"]


def gdn_step(
    projected: jax.Array,
    x: Activation,
    state: GdnState,
    weights: GdnWeights,
    layer: jax.Array,
    slots: jax.Array,
    positions: jax.Array,
    *,
    eps: float,
    out_dtype: DTypeLike,
    impl: Impl = "auto",
) -> tuple[Activation, GdnState]:
    """One token per row: its output before out_proj, and the state of its slot after it.

    A row at position 0 starts from zero whatever its slot holds. A row with slot < 0 is padding: it writes nothing and
    its output is 0. Two rows must not have one slot. The kernel changes the state in place where it is donated.

    Args:
        projected: float32 [M, C + Hv dv], the convolution's input (queries, keys, values), then the output gate z.
        x: the input [M, H] of the projections; the two small products a and b are computed from it here.
        state: of all layers and slots.
        weights: of all layers.
        layer: int32 [1].
        slots: int32 [M].
        positions: int32 [M], of the token that is fed.
        eps: of the output norm.
        out_dtype: of the output's values.

    Returns:
        Activation [M, Hv dv] with shift 0 and no squares, and the changed state.

    Raises:
        ValueError: an implementation that does not exist, or sizes that do not fit.
    """
    sizes = sizes_of(state)
    if projected.shape[-1] != sizes.channels + sizes.values:
        raise ValueError(f"projected has {projected.shape[-1]} columns, not {sizes.channels} + {sizes.values}")
    arguments = (projected, x, state, weights, layer, slots, positions)
    step = choose(impl, {"reference": gdn_step_reference, "triton": gdn_step_triton})
    return step(*arguments, eps=eps, out_dtype=jnp.dtype(out_dtype))
