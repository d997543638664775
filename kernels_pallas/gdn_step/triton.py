"""One delta-net step in one launch: a program for each row and value head. Its body is the PTX of ptx.py.

A program computes everything that its head needs: the gates from the row's activation (two products of length H),
convolution and lengths of query, key and value, the recurrence, norm and output gate. The value heads of one key head
do some of that twice or thrice, which is cheaper than a second launch.

Invariant: a program depends on its own row alone, so a row's bits depend on no other row and not on their number.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas import overlap
from kernels_pallas.arrays import Activation
from kernels_pallas.blocks import whole
from kernels_pallas.gdn_step import ptx
from kernels_pallas.gdn_step.state import GdnSizes, GdnState, GdnWeights, sizes_of

Ref: TypeAlias = Any
"""An array in device memory as a kernel sees it: jax has no public type for it."""
Index: TypeAlias = tuple[Any, ...]

_TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


def gdn_step_triton(
    projected: jax.Array,
    x: Activation,
    state: GdnState,
    weights: GdnWeights,
    layer: jax.Array,
    slots: jax.Array,
    positions: jax.Array,
    *,
    eps: float,
    out_dtype: jnp.dtype,
) -> tuple[Activation, GdnState]:
    """See `kernels_pallas.gdn_step.gdn_step`. Heads are 128 x 128."""
    sizes = sizes_of(state)
    rows = projected.shape[0]
    shape = shape_of(x, sizes, eps, out_dtype)
    operands = {
        "layer": layer,
        "slots": slots,
        "positions": positions,
        "projected": projected,
        "x": x.values,
        **({} if x.squares is None else {"squares": x.squares}),
        "ab": weights.ab,
        "taps": weights.conv,
        "a_log": weights.a_log,
        "dt_bias": weights.dt_bias,
        "gain": weights.norm,
        "before": state.recurrent,
        "ring_before": state.conv,
    }
    outputs = {
        "out": jax.ShapeDtypeStruct((rows, sizes.values), out_dtype),
        "recurrent": jax.ShapeDtypeStruct(state.recurrent.shape, state.recurrent.dtype),
        "conv": jax.ShapeDtypeStruct(state.conv.shape, state.conv.dtype),
    }
    names = (*operands, *outputs)

    def kernel(*refs: Ref) -> None:
        _kernel(shape, sizes, dict(zip(names, refs, strict=True)))

    out, recurrent, conv = pl.pallas_call(
        kernel,
        grid=(sizes.value_heads, rows),
        in_specs=[whole(operand) for operand in operands.values()],
        out_specs=[whole(output) for output in outputs.values()],
        out_shape=list(outputs.values()),
        input_output_aliases={len(operands) - 2: 1, len(operands) - 1: 2},
        compiler_params=plt.CompilerParams(num_warps=ptx.THREADS // 32, num_stages=1),
        name="gdn_step",
    )(*operands.values())
    changed = GdnState(recurrent=recurrent, conv=conv)
    return Activation(values=out, squares=None, shift=0, eps=0.0), changed


def shape_of(x: Activation, sizes: GdnSizes, eps: float, out_dtype: jnp.dtype) -> ptx.Shape:
    """What the PTX depends on.

    Raises:
        NotImplementedError: the kernel has no such form; the message says why.
    """
    squares, hidden = 0 if x.squares is None else x.squares.shape[1], x.values.shape[1]
    if not overlap.supported:
        raise NotImplementedError("this jax has no inline assembly for Triton kernels")
    if (sizes.key_dim, sizes.value_dim) != (ptx.WIDTH, ptx.WIDTH):
        raise NotImplementedError(f"heads of {sizes.key_dim} x {sizes.value_dim}: the kernel has 128 x 128")
    if hidden % 8 or squares % 4 or squares > 4 * ptx.THREADS:
        raise NotImplementedError(f"{hidden} columns with {squares} sums of squares cannot be dealt out to 256 threads")
    return ptx.Shape(
        hidden=hidden,
        heads=sizes.value_heads,
        keys=sizes.keys,
        channels=sizes.channels,
        squares=squares,
        x_type=_TYPES[x.values.dtype.name],
        out_type=_TYPES[jnp.dtype(out_dtype).name],
        x_scale=2.0**x.shift,
        x_eps=x.eps,
        eps=eps,
    )


def places(row: Any, head: Any, layer: Any, slot: Any) -> dict[str, tuple[str, Index]]:
    """Where the operands of ptx.ADDRESSES lie: the name of an array and the index of an element."""
    return {
        "state": ("recurrent", (layer, slot, head, 0, 0)),
        "x": ("x", (row, 0)),
        "ab": ("ab", (layer, head, 0)),
        "a_log": ("a_log", (layer, head)),
        "dt_bias": ("dt_bias", (layer, head)),
        "projected": ("projected", (row, 0)),
        "ring": ("conv", (layer, slot, 0, 0)),
        "taps": ("taps", (layer, 0, 0)),
        "gain": ("gain", (layer, 0)),
        "out": ("out", (row, head * ptx.WIDTH)),
        "squares": ("squares", (row, 0)),
    }


def values(sizes: GdnSizes, head: jax.Array, slot: jax.Array, position: jax.Array) -> dict[str, jax.Array]:
    """The operands of ptx.VALUES, int32."""
    key_head = lax.div(head, sizes.share)
    return {
        "position": position,
        "real": (slot >= 0).astype(jnp.int32),
        "keeps": (head == key_head * sizes.share).astype(jnp.int32),  # heads of one key head: one stores its inputs
        "channel": key_head * sizes.key_dim,
        "value_channel": 2 * sizes.keys + head * sizes.value_dim,
    }


def _kernel(shape: ptx.Shape, sizes: GdnSizes, refs: Mapping[str, Ref]) -> None:
    head, row = pl.program_id(0), pl.program_id(1)
    slot = refs["slots"][row]
    where = places(row, head, refs["layer"][0], jnp.maximum(slot, 0))
    given = values(sizes, head, slot, refs["positions"][row])
    overlap.assembly(
        ptx.text(shape),
        ptx.constraints(shape),
        addresses=[(refs[where[name][0]], where[name][1]) for name in ptx.addresses(shape)],
        values=[given[name] for name in ptx.VALUES],
    )
