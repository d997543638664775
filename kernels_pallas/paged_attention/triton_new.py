"""New tokens inside the decode kernel: made from the projection, written into the pool, attended to by their own lane.

They never pass through memory on their way to the softmax, yet count as their stored codes say, like every other key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import triton as plt

from kernels_pallas.kv_cache.codes import encode_rows
from kernels_pallas.kv_cache.formats import StorageFormat, decode
from kernels_pallas.kv_cache.pool import PAGE_TOKENS
from kernels_pallas.paged_attention.partials import HIDDEN
from kernels_pallas.paged_attention.tuning import DecodeTuning

LEAST_ROWS = 16
"""Of a product's sides"""
VALUE_LIFT = 256.0
"""Probabilities times value scales are float16 operands; this keeps scales of small values out of its subnormals."""
F16_MAX = 65504.0
State = tuple[jax.Array, jax.Array, jax.Array]
"""A softmax: sums of values [tile, d], best logits and totals [tile]."""
Codes = tuple[jax.Array, jax.Array | None]
"""Rows of codes [n, d] and their scales [n]."""


class Job(NamedTuple):
    """What a kernel is compiled for."""

    fmt: StorageFormat
    group: int
    """Query heads a kv head"""
    lane_rows: int
    tile: int
    """Rows of the products: at least lane_rows * group"""
    cut: DecodeTuning
    eps: float
    exact: bool


class Place(NamedTuple):
    """Where a program's keys are."""

    layer: jax.Array
    tables: Any
    lane: jax.Array
    head: jax.Array


class Projection(NamedTuple):
    """What rows of queries and keys are made of; references."""

    projected: Any
    """[M, 2 * h + 2 * kv, d]"""
    cos: Any
    sin: Any
    layer: jax.Array
    eps: float


def normed_and_rotated(source: Projection, row: jax.Array, heads: jax.Array, real: jax.Array, gain: Any) -> jax.Array:
    """Heads [n] of one row or of rows [n], normed and rotated: float32 [n, d]; zeros where not real [n]."""
    projected, layer = source.projected, source.layer
    width, half = projected.shape[2], source.cos.shape[1]
    dims = lax.broadcasted_iota(jnp.int32, (1, width), 1)
    turned = dims < 2 * half
    partner = jnp.where(dims < half, dims + half, jnp.where(turned, dims - half, dims))
    pair = jnp.where(dims < half, dims, jnp.where(turned, dims - half, 0))
    rows = row if row.ndim == 0 else row[:, None]
    mask = jnp.broadcast_to(real[:, None], (heads.shape[0], width))
    own = plt.load(projected.at[rows, heads[:, None], dims], mask=mask, other=0.0)
    other = plt.load(projected.at[rows, heads[:, None], partner], mask=mask, other=0.0)
    rotated = turned if row.ndim == 0 else mask & turned
    along = plt.load(source.cos.at[rows, pair], mask=rotated, other=1.0)
    across = plt.load(source.sin.at[rows, pair], mask=rotated, other=0.0)
    across = jnp.where(dims < half, -across, across)
    factor = lax.rsqrt(jnp.sum(own * own, axis=1) * (1.0 / width) + source.eps)
    along = along * plt.load(gain.at[layer, dims])
    across = across * plt.load(gain.at[layer, partner])
    result: jax.Array = (own * along + other * across) * factor[:, None]
    return result


def append_and_attend(
    source: Projection,
    positions: Any,
    gain: Any,
    pool: Sequence[Any],
    place: Place,
    job: Job,
    queries: Callable[[], jax.Array],
    number: jax.Array,
) -> State:
    """Write the lane's new keys and values and attend to them alone; row `number` [tile] sees those up to its own."""
    key, value = _append(source, positions, gain, pool, place, job)
    if job.lane_rows > 1:
        return _attend_several(queries(), key, value, number)
    # One key: no softmax, and sums of float32 are cheaper than padding it to a product.
    logits = jnp.sum(queries().astype(jnp.float32) * decode(*key), axis=1)
    return jnp.broadcast_to(decode(*value), (job.tile, value[0].shape[1])), logits, jnp.ones_like(logits)


def _append(
    source: Projection, positions: Any, gain: Any, pool: Sequence[Any], place: Place, job: Job
) -> tuple[Codes, Codes]:
    """Make the lane's new keys and values, write them at their positions: codes [1 or 16, d] and scales of both."""
    layer, tables, lane, head = place
    tokens = 1 if job.lane_rows == 1 else LEAST_ROWS
    token = lax.broadcasted_iota(jnp.int32, (tokens,), 0)
    row = lane * job.lane_rows + token
    position = plt.load(positions.at[row], mask=token < job.lane_rows, other=-1)
    real = position >= 0
    page = plt.load(tables.at[lane, lax.div(position, PAGE_TOKENS)], mask=real, other=pool[0].shape[1])
    offset = jnp.where(real, lax.rem(position, PAGE_TOKENS), 0)
    width, kv = pool[0].shape[4], pool[0].shape[2]
    dims = lax.broadcasted_iota(jnp.int32, (1, width), 1)
    mask = jnp.broadcast_to(real[:, None], (tokens, width))
    key_head = source.projected.shape[1] - 2 * kv + head
    at_row = row if job.lane_rows > 1 else lane
    key = normed_and_rotated(source, at_row, jnp.broadcast_to(key_head, token.shape), real, gain)
    value = plt.load(source.projected.at[row[:, None], key_head + kv, dims], mask=mask, other=0.0)
    stored = []
    for number, rows in enumerate((key, value)):
        codes, scales = encode_rows(rows, job.fmt, exact=job.exact)
        at = (offset[:, None], dims) if number == 0 else (dims, offset[:, None])
        plt.store(pool[number].at[(layer, page[:, None], head, *at)], codes, mask=mask)
        if scales is not None:
            plt.store(pool[2 + number].at[layer, page, head, offset], scales, mask=real)
        stored.append((codes, scales))
    return stored[0], stored[1]


def _attend_several(query: jax.Array, key: Codes, value: Codes, number: jax.Array) -> State:
    """Softmax over the lane's new tokens, of which row `number` [tile] sees those up to its own."""
    logits = plt.dot(query, key[0].astype(query.dtype).T)
    if key[1] is not None:
        logits = logits * key[1][None, :]
    seen = lax.broadcasted_iota(jnp.int32, logits.shape, 1) <= number[:, None]
    logits = jnp.where(seen, logits, HIDDEN)
    best = jnp.max(logits, axis=1)
    shares = jnp.where(seen, jnp.exp2(logits - best[:, None]), 0.0)
    total = jnp.sum(shares, axis=1)
    if value[1] is None:
        return plt.dot(shares.astype(query.dtype), value[0].astype(query.dtype)), best, total
    lifted = jnp.minimum(shares * (value[1] * VALUE_LIFT)[None, :], F16_MAX)
    return plt.dot(lifted.astype(query.dtype), value[0].astype(query.dtype)) * (1.0 / VALUE_LIFT), best, total
