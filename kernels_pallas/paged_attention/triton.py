"""Attention of a decode step, Pallas-Triton: norm, rotation, append and split attention in one kernel.

Grid (row, kv head, split). Every program makes its own queries from the projection (6 KB: cheaper than a kernel
before this one). The program of the row's last split also makes the new key and value, writes them into the page that
only this row owns, and starts its softmax with them: nobody reads those bytes in this launch.

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
from kernels_pallas.paged_attention.partials import HIDDEN, Partials, pages_per_split, visible_pages
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
    splits = min(cut.splits, tables.shape[1])
    arrays = pool.arrays()
    inputs = (projected.reshape(rows, columns // width, width), *norms, layer, tables, positions, cos, sin)
    kernel = functools.partial(_kernel, fmt=pool.storage, splits=splits, group=group, cut=cut, eps=eps, exact=interpret)
    outputs = [
        jax.ShapeDtypeStruct((rows, splits, queries, width), jnp.float32),
        jax.ShapeDtypeStruct((rows, splits, queries), jnp.float32),
        *(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays),
    ]
    mixed, weights, *written = pl.pallas_call(
        kernel,
        grid=(rows, pool.heads, splits),
        in_specs=[_whole(array) for array in (*inputs, *arrays)],
        out_specs=[_whole(array) for array in outputs],
        out_shape=outputs,
        input_output_aliases={len(inputs) + i: 2 + i for i in range(len(arrays))},
        compiler_params=plt.CompilerParams(num_warps=cut.warps, num_stages=cut.stages),
        interpret=interpret,
        name="attend_rows",
    )(*inputs, *arrays)
    pool = jax.tree.unflatten(jax.tree.structure(pool), written)
    return Partials(mixed=mixed, weights=weights, positions=positions, least_pages=cut.least_pages), pool


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
    splits: int,
    group: int,
    cut: DecodeTuning,
    eps: float,
    exact: bool,
) -> None:
    # The pool is reached through the references of the results alone: reads and writes of one buffer, one pointer.
    mixed, weights, *pool = refs[len(refs) // 2 - 1 :]
    if cut.release and not exact:
        overlap.release_next(weights)
    row, head, split = (pl.program_id(axis) for axis in range(3))
    position, layer = positions[row], layer_ref[0]
    pages = visible_pages(position)
    own = pages_per_split(pages, splits, cut.least_pages)
    first = split * own
    count = jnp.clip(pages - first, 0, own)

    @pl.when(count > 0)
    def _() -> None:
        place = _Place(layer, tables, row, head)
        if cut.prefetch and not exact:
            _ask_for_page(pool[:2], place, first)
        tile = lax.broadcasted_iota(jnp.int32, (_TILE_ROWS,), 0)
        heads = head * group + tile
        turn = functools.partial(_normed_and_rotated, projected, row, cos, sin, eps)
        query = turn(2 * heads, tile < group, query_gain, layer) * (projected.shape[2] ** -0.5 * _LOG2_E)
        query = query.astype(operand_dtype(fmt))
        total_heads = projected.shape[1] // 2 - pool[0].shape[2]

        def with_new_token() -> _State:
            new = 2 * total_heads + head + lax.broadcasted_iota(jnp.int32, (1,), 0)
            key = encode_rows(turn(new, None, key_gain, layer), fmt, exact=exact)
            raw = projected[row, pl.ds(2 * total_heads + pool[0].shape[2] + head, 1), :]
            value = encode_rows(raw, fmt, exact=exact)
            _store(pool, (layer, tables[row, pages - 1], head, lax.rem(position, PAGE_TOKENS)), key, value)
            return _start_with(query, decode(*key), decode(*value) * (_VALUE_LIFT if fmt.scaled else 1.0))

        state = lax.cond(first + count == pages, with_new_token, lambda: _start_empty(query))
        done, best, total = _attend(query, pool, place, (first, count, position), state, fmt, cut.block_tokens, exact)
        dims = lax.broadcasted_iota(jnp.int32, (1, query.shape[1]), 1)
        real = jnp.broadcast_to((tile < group)[:, None], query.shape)
        plt.store(mixed.at[row, split, heads[:, None], dims], done / total[:, None], mask=real)
        plt.store(weights.at[row, split, heads], best + jnp.log2(total), mask=tile < group)


def _ask_for_page(codes: Sequence[Any], place: _Place, number: jax.Array) -> None:
    """Bring page `number` of the row under way while the queries are made."""
    page = place.tables[place.row, number]
    for array in codes:
        size_bytes = array.shape[3] * array.shape[4] * jnp.dtype(array.dtype).itemsize
        overlap.prefetch(array, (place.layer, page, place.head, 0, 0), size_bytes)


def _start_empty(query: jax.Array) -> _State:
    """No key seen."""
    rows, width = query.shape
    return (
        jnp.zeros((rows, width), jnp.float32),
        jnp.full((rows,), HIDDEN, jnp.float32),
        jnp.zeros((rows,), jnp.float32),
    )


def _start_with(query: jax.Array, key: jax.Array, value: jax.Array) -> _State:
    """One key [1, d] seen, which need not be in the pool yet: as its codes say, like every other key."""
    logits = jnp.sum(query.astype(jnp.float32) * key, axis=1)
    return jnp.broadcast_to(value, query.shape), logits, jnp.ones_like(logits)


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
    state: _State,
    fmt: StorageFormat,
    block: int,
    exact: bool,
) -> _State:
    """Go on with an online softmax over the keys before `position` in pages first .. first + count - 1."""
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

    # No block without a visible key is read; the row's own key is not in the pool yet, or half.
    visible = jnp.minimum(count * PAGE_TOKENS, position - first * PAGE_TOKENS)
    done, best, total = lax.fori_loop(0, lax.div(visible + block - 1, block), step, state)
    return (done * (1.0 / _VALUE_LIFT) if fmt.scaled else done), best, total
