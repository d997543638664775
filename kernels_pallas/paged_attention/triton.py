"""Attention of a decode step, Pallas-Triton: norm, rotation, append and split attention in one kernel.

Grid (lane, kv head, part). Every program makes its own queries from the projection (6 KB a row: cheaper than a kernel
before this one). Part 0 also makes the new keys and values, writes them into pages that only this lane owns, and
attends to them alone; the others attend to the keys before, so nobody reads in this launch what is written in it.

A tile has at least 16 rows, of which the query heads of one kv head are real (6 of the 27B, times the rows of a lane).
Scales of 8-bit codes multiply logits and probabilities, never tiles. Knows no gates: `combine` does.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas import overlap
from kernels_pallas.blocks import whole
from kernels_pallas.kv_cache.codes import operand_dtype, power_of_two, widen
from kernels_pallas.kv_cache.pool import PAGE_TOKENS, KvPool
from kernels_pallas.paged_attention.partials import HIDDEN, Partials, pages_before, pages_per_split
from kernels_pallas.paged_attention.reference import query_heads
from kernels_pallas.paged_attention.triton_new import (
    F16_MAX,
    LEAST_ROWS,
    VALUE_LIFT,
    Job,
    Place,
    Projection,
    State,
    append_and_attend,
    normed_and_rotated,
)
from kernels_pallas.paged_attention.tuning import TUNING, DecodeTuning

_LOG2_E = 1.4426950408889634
_MOST_ROWS = 128
"""Of a tile"""


def attend_rows(
    projected: jax.Array,
    pool: KvPool,
    norms: tuple[jax.Array, jax.Array],
    layer: jax.Array,
    tables: jax.Array,
    positions: jax.Array,
    cos: jax.Array,
    sin: jax.Array,
    *,
    eps: float,
    tuning: DecodeTuning | None = None,
    interpret: bool = False,
) -> tuple[Partials, KvPool]:
    """See the package."""
    if pool.format not in TUNING:
        raise NotImplementedError(f"the decode kernel reads {', '.join(TUNING)}, not {pool.format}")
    rows, columns = projected.shape
    queries, width = query_heads(columns, pool.heads, pool.width), pool.width
    lanes, group = tables.shape[0], queries // pool.heads
    tile = max(LEAST_ROWS, pl.next_power_of_2(rows // lanes * group))
    if width & (width - 1) or tile > _MOST_ROWS or rows // lanes > LEAST_ROWS:
        raise NotImplementedError(
            f"head width {width} is no power of two, or {rows // lanes} rows a lane of {group} heads are too many"
        )
    cut = tuning or TUNING[pool.format]
    parts, arrays = 1 + min(cut.splits, tables.shape[1]), pool.arrays()
    inputs = (projected.reshape(rows, columns // width, width), *norms, layer, tables, positions, cos, sin)
    job = Job(pool.storage, group, rows // lanes, tile, cut, eps, interpret)
    outputs = [
        jax.ShapeDtypeStruct((rows, parts, queries, width), jnp.float32),
        jax.ShapeDtypeStruct((rows, parts, queries), jnp.float32),
        *(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays),
    ]
    mixed, weights, *written = pl.pallas_call(
        functools.partial(_kernel, job=job),
        grid=(lanes, pool.heads, parts),
        in_specs=[whole(array) for array in (*inputs, *arrays)],
        out_specs=[whole(array) for array in outputs],
        out_shape=outputs,
        input_output_aliases={len(inputs) + i: 2 + i for i in range(len(arrays))},
        compiler_params=plt.CompilerParams(num_warps=max(cut.warps, min(tile // 8, 8)), num_stages=cut.stages),
        interpret=interpret,
        name="attend_rows",
    )(*inputs, *arrays)
    pool = jax.tree.unflatten(jax.tree.structure(pool), written)
    return Partials(mixed=mixed, weights=weights, positions=positions, lane_rows=rows // lanes), pool


def _kernel(
    projected: Any,
    query_gain: Any,
    key_gain: Any,
    layer: Any,
    tables: Any,
    positions: Any,
    cos: Any,
    sin: Any,
    *refs: Any,
    job: Job,
) -> None:
    # The pool is reached through the references of the results alone: reads and writes of one buffer, one pointer.
    mixed, weights, *pool = refs[len(refs) // 2 - 1 :]
    lane, head, part = (pl.program_id(axis) for axis in range(3))
    start = positions[lane * job.lane_rows]
    place = Place(layer[0], tables, lane, head)
    source = Projection(projected, cos, sin, place.layer, job.eps)
    pages = pages_before(start)
    own = pages_per_split(pages, mixed.shape[1] - 1)
    first = (part - 1) * own
    count = jnp.clip(pages - first, 0, own)
    tile = lax.broadcasted_iota(jnp.int32, (job.tile,), 0)
    number = lax.div(tile, job.group) if job.lane_rows > 1 else tile * 0
    heads = head * job.group + tile - number * job.group
    real = tile < job.lane_rows * job.group

    def queries() -> jax.Array:
        rows = lane * job.lane_rows + (number if job.lane_rows > 1 else 0)
        query = normed_and_rotated(source, rows, 2 * heads, real, query_gain)
        operands: jax.Array = (query * (query.shape[1] ** -0.5 * _LOG2_E)).astype(operand_dtype(job.fmt))
        return operands

    def put(state: State) -> None:
        done, best, total = state
        rows, dims = lane * job.lane_rows + number, lax.broadcasted_iota(jnp.int32, (1, done.shape[1]), 1)
        whole = jnp.broadcast_to(real[:, None], done.shape)
        plt.store(mixed.at[rows[:, None], part, heads[:, None], dims], done * (1.0 / total)[:, None], mask=whole)
        plt.store(weights.at[rows, part, heads], best + jnp.log2(total), mask=real)

    @pl.when((part == 0) & (start >= 0))
    def _() -> None:
        put(append_and_attend(source, positions, key_gain, pool, place, job, queries, number))

    @pl.when((part > 0) & (count > 0))
    def _() -> None:
        if job.cut.prefetch and not job.exact:
            _ask_for_page(pool[:2], place, first)
        put(_attend(queries(), pool, place, (first, count, start), job))


def _ask_for_page(codes: Sequence[Any], place: Place, number: jax.Array) -> None:
    """Bring page `number` of the lane under way while the queries are made."""
    page = place.tables[place.lane, number]
    for array in codes:
        size_bytes = array.shape[3] * array.shape[4] * jnp.dtype(array.dtype).itemsize
        overlap.prefetch(array, (place.layer, page, place.head, 0, 0), size_bytes)


def _attend(
    query: jax.Array, pool: Sequence[Any], place: Place, span: tuple[jax.Array, jax.Array, jax.Array], job: Job
) -> State:
    """Online softmax over the keys before `position` in pages first .. first + count - 1."""
    layer, tables, lane, head = place
    first, count, position = span
    fmt, block, exact = job.fmt, job.cut.block_tokens, job.exact
    steps = PAGE_TOKENS // block
    keys, values = pool[:2]

    def step(number: jax.Array, state: State) -> State:
        done, best, total = state
        page = tables[lane, first + lax.div(number, steps)]
        tokens = pl.ds(lax.rem(number, steps) * block, block)
        logits = plt.dot(query, widen(keys[layer, page, head, tokens, :], fmt, exact=exact).T)
        if fmt.scaled:
            logits = logits * pool[2][layer, page, head, tokens][None, :]
        seen = first * PAGE_TOKENS + number * block + lax.broadcasted_iota(jnp.int32, (block,), 0)
        logits = jnp.where((seen < position)[None, :], logits, HIDDEN)
        higher = jnp.maximum(best, jnp.max(logits, axis=1))
        keep = power_of_two(best - higher, exact=exact)
        shares = power_of_two(logits - higher[:, None], exact=exact)
        total = total * keep + jnp.sum(shares, axis=1)
        if fmt.scaled:
            lifted = pool[3][layer, page, head, tokens] * VALUE_LIFT
            shares = jnp.minimum(shares * lifted[None, :], F16_MAX)
        value = widen(values[layer, page, head, :, tokens], fmt, exact=exact)
        return done * keep[:, None] + plt.dot(shares.astype(query.dtype), value.T), higher, total

    width = query.shape[1]
    state = (
        jnp.zeros((job.tile, width), jnp.float32),
        jnp.full((job.tile,), HIDDEN, jnp.float32),
        jnp.zeros((job.tile,), jnp.float32),
    )
    # No block without a visible key is read. Of the row's own key and value any half may be there already.
    visible = jnp.minimum(count * PAGE_TOKENS, position - first * PAGE_TOKENS)
    done, best, total = lax.fori_loop(0, lax.div(visible + block - 1, block), step, state)
    return (done * (1.0 / VALUE_LIFT) if fmt.scaled else done), best, total
