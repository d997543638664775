"""Sum of the parts times the sigmoid of the gate, Pallas-Triton: the second kernel of a decode step's attention.

Grid (row, query head, columns of the head). A program reads its columns of all parts that the row used in one go.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt
from jax.typing import DTypeLike

from kernels_pallas.blocks import whole
from kernels_pallas.paged_attention.partials import HIDDEN, Partials, used_parts
from kernels_pallas.paged_attention.tuning import DecodeTuning


def combine(
    partials: Partials,
    projected: jax.Array,
    out_dtype: DTypeLike,
    *,
    tuning: DecodeTuning | None = None,
    interpret: bool = False,
) -> jax.Array:
    """See the package. Values out_dtype [M, h * d]."""
    rows, parts, queries, width = partials.mixed.shape
    cut = tuning or DecodeTuning()
    columns = min(cut.combine_columns, width)
    inputs = (partials.positions, partials.weights, partials.mixed, projected.reshape(rows, -1, width))
    out = jax.ShapeDtypeStruct((rows, queries, width), out_dtype)
    values: jax.Array = pl.pallas_call(
        functools.partial(_kernel, parts=parts, lane_rows=partials.lane_rows, columns=columns),
        grid=(rows, queries, width // columns),
        in_specs=[whole(array) for array in inputs],
        out_specs=whole(out),
        out_shape=out,
        compiler_params=plt.CompilerParams(num_warps=cut.combine_warps, num_stages=1),
        interpret=interpret,
        name="combine_splits",
    )(*inputs)
    return values.reshape(rows, queries * width)


def _kernel(
    positions: Any, weights: Any, mixed: Any, projected: Any, out: Any, *, parts: int, lane_rows: int, columns: int
) -> None:
    row, head, column = (pl.program_id(axis) for axis in range(3))
    dims = pl.ds(column * columns, columns)
    padded = pl.next_power_of_2(parts)
    number = lax.broadcasted_iota(jnp.int32, (padded,), 0)
    start = positions[lax.div(row, lane_rows) * lane_rows]
    used = number < used_parts(start, positions[row], parts)
    logs = plt.load(weights.at[row, number, head], mask=used, other=HIDDEN)
    each = column * columns + lax.broadcasted_iota(jnp.int32, (1, columns), 1)
    read = jnp.broadcast_to(used[:, None], (padded, columns))
    averages = plt.load(mixed.at[row, number[:, None], head, each], mask=read, other=0.0)
    shares = jnp.where(used, jnp.exp2(logs - jnp.max(logs, axis=0)), 0.0)
    total = jnp.sum(shares, axis=0)
    average = jnp.sum(averages * shares[:, None], axis=0) / jnp.where(total > 0.0, total, 1.0)
    gate = projected[row, 2 * head + 1, dims]
    out[row, head, dims] = (average / (1.0 + jnp.exp(-gate))).astype(out.dtype)
