"""A prompt's rows between its products, Pallas-Triton: a fixed tile and a fixed order of every sum.

`normalise` has a program a row, `heads` one for 16 rows of a head. `gates` cuts K into four parts, since the few
programs of a short chunk would otherwise walk through all of it alone; the parts are added in one order.
Invariant: nothing is cut by the number of rows.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.blocks import whole

Ref: TypeAlias = Any
"""An array in device memory as a kernel sees it: jax has no public type for it."""

NORM_BLOCK = 1024
NORM_WARPS = 4
GATE_ROWS = 64
GATE_COLUMNS = 32
GATE_DEPTH = 64
GATE_PARTS = 4
GATE_WARPS = 4
HEAD_ROWS = 16
HEAD_WARPS = 4


def normalise(
    residual: jax.Array,
    gains: jax.Array,
    index: jax.Array,
    *,
    eps: float,
    out_dtype: jnp.dtype,
    interpret: bool = False,
) -> jax.Array:
    """See the package."""
    tokens, width = residual.shape
    normed: jax.Array = pl.pallas_call(
        functools.partial(_normalise_kernel, block=min(NORM_BLOCK, width & -width), eps=eps),
        grid=(tokens,),
        in_specs=[whole(residual), whole(gains), whole(index)],
        out_specs=whole(residual),
        out_shape=jax.ShapeDtypeStruct(residual.shape, out_dtype),
        compiler_params=plt.CompilerParams(num_warps=NORM_WARPS, num_stages=1),
        interpret=interpret,
        name="normalise",
    )(residual, gains, index)
    return normed


def _normalise_kernel(residual: Ref, gains: Ref, index: Ref, out: Ref, *, block: int, eps: float) -> None:
    row, width = pl.program_id(0), residual.shape[1]
    places = [pl.ds(first, block) for first in range(0, width, block)]
    parts = [residual[row, place] for place in places]
    squares = functools.reduce(jnp.add, [part * part for part in parts])
    factor = lax.rsqrt(jnp.sum(squares) * (1.0 / width) + eps)
    for place, part in zip(places, parts, strict=True):
        out[row, place] = (part * factor * gains[index[0], place]).astype(out.dtype)


def gates(x: jax.Array, weights: jax.Array, layer: jax.Array, *, interpret: bool = False) -> jax.Array:
    """See the package."""
    (tokens, depth), (_, columns, _) = x.shape, weights.shape
    parts = GATE_PARTS if depth % (GATE_PARTS * GATE_DEPTH) == 0 else 1
    if tokens % GATE_ROWS or columns % GATE_COLUMNS or depth % GATE_DEPTH:
        raise NotImplementedError(
            f"gates of x {list(x.shape)} and {columns} rows: T and K must be multiples of 64, N one of {GATE_COLUMNS}"
        )
    sums = jax.ShapeDtypeStruct((parts, tokens, columns), jnp.float32)
    partial_sums: jax.Array = pl.pallas_call(
        _gates_kernel,
        grid=(tokens // GATE_ROWS, columns // GATE_COLUMNS, parts),
        in_specs=[whole(x), whole(weights), whole(layer)],
        out_specs=whole(sums),
        out_shape=sums,
        compiler_params=plt.CompilerParams(num_warps=GATE_WARPS, num_stages=4),
        interpret=interpret,
        name="gates",
    )(x, weights, layer)
    total: jax.Array = partial_sums[0]
    for part in range(1, parts):
        total = total + partial_sums[part]
    return total


def _gates_kernel(x: Ref, weights: Ref, layer: Ref, out: Ref) -> None:
    rows = pl.ds(pl.program_id(0) * GATE_ROWS, GATE_ROWS)
    columns = pl.ds(pl.program_id(1) * GATE_COLUMNS, GATE_COLUMNS)
    part, steps = pl.program_id(2), x.shape[1] // (GATE_DEPTH * out.shape[0])
    own = layer[0]

    def step(number: jax.Array, total: jax.Array) -> jax.Array:
        depth = pl.ds((part * steps + number) * GATE_DEPTH, GATE_DEPTH)
        left, right = x[rows, depth], weights[own, columns, depth].astype(x.dtype)
        after: jax.Array = total + plt.dot(left, right, trans_b=True)
        return after

    out[part, rows, columns] = lax.fori_loop(0, steps, step, jnp.zeros((GATE_ROWS, GATE_COLUMNS), jnp.float32))


def heads(
    projected: jax.Array,
    query_gains: jax.Array,
    key_gains: jax.Array,
    layer: jax.Array,
    tables: tuple[jax.Array, jax.Array],
    *,
    groups: int,
    eps: float,
    out_dtype: jnp.dtype,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """See the package."""
    tokens, width = projected.shape[0], query_gains.shape[1]
    half = tables[0].shape[1]
    if width & (width - 1) or half & (half - 1) or width % (2 * half) or tokens % HEAD_ROWS:
        raise NotImplementedError(f"heads of {width}, of which {2 * half} turn, are no powers of two")
    queries = projected.shape[1] // (2 * width) - groups
    operands = (projected, query_gains, key_gains, layer, *tables)
    outputs = [
        jax.ShapeDtypeStruct((tokens, queries, width), out_dtype),
        jax.ShapeDtypeStruct((tokens, groups, width), jnp.float32),
        jax.ShapeDtypeStruct((tokens, groups, width), projected.dtype),
    ]
    query, key, value = pl.pallas_call(
        functools.partial(_heads_kernel, queries=queries, groups=groups, eps=eps),
        grid=(tokens // HEAD_ROWS, queries + groups),
        in_specs=[whole(operand) for operand in operands],
        out_specs=[whole(output) for output in outputs],
        out_shape=outputs,
        compiler_params=plt.CompilerParams(num_warps=HEAD_WARPS, num_stages=1),
        interpret=interpret,
        name="heads",
    )(*operands)
    return query, key, value


def _heads_kernel(
    projected: Ref,
    query_gains: Ref,
    key_gains: Ref,
    layer: Ref,
    cos: Ref,
    sin: Ref,
    query: Ref,
    key: Ref,
    value: Ref,
    *,
    queries: int,
    groups: int,
    eps: float,
) -> None:
    rows, head = pl.ds(pl.program_id(0) * HEAD_ROWS, HEAD_ROWS), pl.program_id(1)
    turn = functools.partial(_normed_and_rotated, projected, layer[0], (cos, sin), rows, eps)
    width = query.shape[2]

    @pl.when(head < queries)
    def _() -> None:
        turn(2 * head * width, query_gains, query, head)

    @pl.when(head >= queries)
    def _() -> None:
        own = head - queries
        turn((2 * queries + own) * width, key_gains, key, own)
        value[rows, own, :] = projected[rows, pl.ds((2 * queries + groups + own) * width, width)]


def _normed_and_rotated(
    projected: Ref,
    layer: jax.Array,
    tables: tuple[Ref, Ref],
    rows: Any,
    eps: float,
    first: jax.Array,
    gains: Ref,
    out: Ref,
    head: jax.Array,
) -> None:
    """One head's rows, in pieces of what turns with what: [first half, second half, rest ...], all of one width."""
    half, width = tables[0].shape[1], out.shape[2]
    places = [pl.ds(at, half) for at in range(0, width, half)]
    parts = [projected[rows, pl.ds(first + place.start, half)].astype(jnp.float32) for place in places]
    squares = jnp.sum(functools.reduce(jnp.add, [part * part for part in parts]), axis=1)
    factor = lax.rsqrt(squares * (1.0 / width) + eps)[:, None]
    normed = [part * factor * gains[layer, place][None, :] for part, place in zip(parts, places, strict=True)]
    cos, sin = tables[0][rows, :], tables[1][rows, :]
    normed[:2] = [normed[0] * cos - normed[1] * sin, normed[1] * cos + normed[0] * sin]
    for place, part in zip(places, normed, strict=True):
        out[rows, head, place] = part.astype(out.dtype)
