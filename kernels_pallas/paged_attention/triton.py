"""Attention of a decode step, Pallas-Triton: norm, rotation, append and split attention in one kernel.

Grid (row, kv head, part). Every program makes its own queries from the projection (6 KB: cheaper than a kernel before
this one). Part 0 also makes the new key and value, writes them into the page that only this row owns, and attends to
them alone; the others attend to the keys before, so nobody reads in this launch what is written in it.

The products have 16 rows, of which the query heads of one kv head (6 of the 27B) are real. Scales of 8-bit codes
multiply logits and probabilities, never tiles. Knows no gates: `combine` does.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas import overlap
from kernels_pallas.kv_cache.codes import encode_rows, operand_dtype, power_of_two, widen
from kernels_pallas.kv_cache.formats import StorageFormat, decode
from kernels_pallas.kv_cache.pool import PAGE_TOKENS, KvPool
from kernels_pallas.paged_attention.partials import HIDDEN, Partials, pages_before, pages_per_split
from kernels_pallas.paged_attention.reference import query_heads
from kernels_pallas.paged_attention.tuning import TUNING, DecodeTuning

_LOG2_E = 1.4426950408889634
_TILE_ROWS = 16
_VALUE_LIFT = 256.0
"""Probabilities times value scales are float16 operands; this keeps scales of small values out of its subnormals."""
_F16_MAX = 65504.0
_State = tuple[jax.Array, jax.Array, jax.Array]
"""Softmax in progress: sums of values [16, d], best logits and totals [16]."""


class _Place(NamedTuple):
    """Where a program's keys are."""

    layer: jax.Array
    tables: Any
    row: jax.Array
    head: jax.Array


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
    group = queries // pool.heads
    if width & (width - 1) or group > _TILE_ROWS or tables.shape[1] < 1:
        raise NotImplementedError(
            f"head width {width} is no power of two, or {group} queries a head exceed {_TILE_ROWS}"
        )
    cut = tuning or TUNING[pool.format]
    parts = 1 + min(cut.splits, tables.shape[1])
    arrays = pool.arrays()
    inputs = (projected.reshape(rows, columns // width, width), *norms, layer, tables, positions, cos, sin)
    kernel = functools.partial(_kernel, fmt=pool.storage, group=group, cut=cut, eps=eps, exact=interpret)
    outputs = [
        jax.ShapeDtypeStruct((rows, parts, queries, width), jnp.float32),
        jax.ShapeDtypeStruct((rows, parts, queries), jnp.float32),
        *(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays),
    ]
    mixed, weights, *written = pl.pallas_call(
        kernel,
        grid=(rows, pool.heads, parts),
        in_specs=[_whole(array) for array in (*inputs, *arrays)],
        out_specs=[_whole(array) for array in outputs],
        out_shape=outputs,
        input_output_aliases={len(inputs) + i: 2 + i for i in range(len(arrays))},
        compiler_params=plt.CompilerParams(num_warps=cut.warps, num_stages=cut.stages),
        interpret=interpret,
        name="attend_rows",
    )(*inputs, *arrays)
    pool = jax.tree.unflatten(jax.tree.structure(pool), written)
    return Partials(mixed=mixed, weights=weights, positions=positions), pool


def _whole(array: jax.Array | jax.ShapeDtypeStruct) -> pl.BlockSpec:
    return pl.BlockSpec(array.shape, lambda *_: (0,) * len(array.shape))


def _kernel(
    projected: Any,
    query_gain: Any,
    key_gain: Any,
    layer_ref: Any,
    tables: Any,
    positions: Any,
    cos: Any,
    sin: Any,
    *refs: Any,
    fmt: StorageFormat,
    group: int,
    cut: DecodeTuning,
    eps: float,
    exact: bool,
) -> None:
    # The pool is reached through the references of the results alone: reads and writes of one buffer, one pointer.
    mixed, weights, *pool = refs[len(refs) // 2 - 1 :]
    row, head, part = (pl.program_id(axis) for axis in range(3))
    position, layer = positions[row], layer_ref[0]
    pages = pages_before(position)
    own = pages_per_split(pages, mixed.shape[1] - 1)
    first = (part - 1) * own
    count = jnp.clip(pages - first, 0, own)
    turn = functools.partial(_normed_and_rotated, projected, row, cos, sin, eps)
    tile = lax.broadcasted_iota(jnp.int32, (_TILE_ROWS,), 0)
    heads = head * group + tile

    def queries() -> jax.Array:
        query = turn(2 * heads, tile < group, query_gain, layer) * (projected.shape[2] ** -0.5 * _LOG2_E)
        operands: jax.Array = query.astype(operand_dtype(fmt))
        return operands

    def put(average: jax.Array, weight: jax.Array) -> None:
        dims = lax.broadcasted_iota(jnp.int32, (1, average.shape[1]), 1)
        real = jnp.broadcast_to((tile < group)[:, None], average.shape)
        plt.store(mixed.at[row, part, heads[:, None], dims], average, mask=real)
        plt.store(weights.at[row, part, heads], weight, mask=tile < group)

    @pl.when((part == 0) & (position >= 0))
    def _() -> None:
        key_head = projected.shape[1] - 2 * pool[0].shape[2] + head
        new = key_head + lax.broadcasted_iota(jnp.int32, (1,), 0)
        key = encode_rows(turn(new, None, key_gain, layer), fmt, exact=exact)
        value = encode_rows(projected[row, pl.ds(key_head + pool[0].shape[2], 1), :], fmt, exact=exact)
        page = tables[row, lax.div(position, PAGE_TOKENS)]
        _store(pool, (layer, page, head, lax.rem(position, PAGE_TOKENS)), key, value)
        # As its codes say, like every other key.
        logits = jnp.sum(queries().astype(jnp.float32) * decode(*key), axis=1)
        put(jnp.broadcast_to(decode(*value), (_TILE_ROWS, projected.shape[2])), logits)

    @pl.when((part > 0) & (count > 0))
    def _() -> None:
        place = _Place(layer, tables, row, head)
        if cut.prefetch and not exact:
            _ask_for_page(pool[:2], place, first)
        done, best, total = _attend(queries(), pool, place, (first, count, position), fmt, cut.block_tokens, exact)
        put(done / total[:, None], best + jnp.log2(total))


def _ask_for_page(codes: Sequence[Any], place: _Place, number: jax.Array) -> None:
    """Bring page `number` of the row under way while the queries are made."""
    page = place.tables[place.row, number]
    for array in codes:
        size_bytes = array.shape[3] * array.shape[4] * jnp.dtype(array.dtype).itemsize
        overlap.prefetch(array, (place.layer, page, place.head, 0, 0), size_bytes)


def _normed_and_rotated(
    projected: Any, row: jax.Array, cos: Any, sin: Any, eps: float, heads: jax.Array, mask: Any, gain: Any, layer: Any
) -> jax.Array:
    """Rows `heads` [n] of projected[row], normed with gain[layer] and rotated: float32 [n, d]. Masked ones are zero."""
    width, half = projected.shape[2], cos.shape[1]
    dims = lax.broadcasted_iota(jnp.int32, (width,), 0)
    turned = dims < 2 * half
    partner = jnp.where(dims < half, dims + half, jnp.where(turned, dims - half, dims))
    pair = jnp.where(dims < half, dims, jnp.where(turned, dims - half, 0))
    shape = (heads.shape[0], width)
    options: dict[str, Any] = {} if mask is None else {"mask": jnp.broadcast_to(mask[:, None], shape), "other": 0.0}
    own = plt.load(projected.at[row, heads[:, None], dims[None, :]], **options)
    other = plt.load(projected.at[row, heads[:, None], partner[None, :]], **options)
    along = plt.load(cos.at[row, pair], mask=turned, other=1.0)
    across = plt.load(sin.at[row, pair], mask=turned, other=0.0)
    across = jnp.where(dims < half, -across, across)
    factor = lax.rsqrt(jnp.sum(own * own, axis=1) * (1.0 / width) + eps)
    along = along * gain[layer, :]
    across = across * plt.load(gain.at[layer, partner])
    turned_rows: jax.Array = (own * along[None, :] + other * across[None, :]) * factor[:, None]
    return turned_rows


def _store(
    pool: Sequence[Any],
    at: tuple[jax.Array, ...],
    key: tuple[jax.Array, jax.Array | None],
    value: tuple[jax.Array, jax.Array | None],
) -> None:
    """Write one token of one head: key and value are codes [1, d] and scales [1]."""
    *page, offset = at
    pool[0][(*page, pl.ds(offset, 1), slice(None))] = key[0]
    pool[1][(*page, slice(None), pl.ds(offset, 1))] = value[0].reshape(-1, 1)
    for scales, (_, scale) in zip(pool[2:], (key, value), strict=False):
        scales[(*page, pl.ds(offset, 1))] = scale


def _attend(
    query: jax.Array,
    pool: Sequence[Any],
    place: _Place,
    span: tuple[jax.Array, jax.Array, jax.Array],
    fmt: StorageFormat,
    block: int,
    exact: bool,
) -> _State:
    """Online softmax over the keys before `position` in pages first .. first + count - 1."""
    layer, tables, row, head = place
    first, count, position = span
    steps = PAGE_TOKENS // block
    keys, values = pool[:2]

    def step(number: jax.Array, state: _State) -> _State:
        done, best, total = state
        page = tables[row, first + lax.div(number, steps)]
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
            lifted = pool[3][layer, page, head, tokens] * _VALUE_LIFT
            shares = jnp.minimum(shares * lifted[None, :], _F16_MAX)
        value = widen(values[layer, page, head, :, tokens], fmt, exact=exact)
        return done * keep[:, None] + plt.dot(shares.astype(query.dtype), value.T), higher, total

    width = query.shape[1]
    state = (
        jnp.zeros((_TILE_ROWS, width), jnp.float32),
        jnp.full((_TILE_ROWS,), HIDDEN, jnp.float32),
        jnp.zeros((_TILE_ROWS,), jnp.float32),
    )
    # No block without a visible key is read. Of the row's own key and value any half may be there already.
    visible = jnp.minimum(count * PAGE_TOKENS, position - first * PAGE_TOKENS)
    done, best, total = lax.fori_loop(0, lax.div(visible + block - 1, block), step, state)
    return (done * (1.0 / _VALUE_LIFT) if fmt.scaled else done), best, total
