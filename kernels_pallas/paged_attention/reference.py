"""Plain JAX meaning of a decode step's attention; slow, float32, and what kernels are judged by.

The formulas are those of the model's gated attention (docs/architecture.md names its file): per head RMSNorm of queries
and keys with a gain, rotation of the first dimensions (pair p couples p and p + rotary / 2), softmax of scaled products
over the lane's keys, weighted sum of values, times the sigmoid of the gate.
Symbols: M rows, h query heads, kv key-value heads, d head width, P pages of a lane's table.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from kernels_pallas.kv_cache.pool import PAGE_TOKENS, KvPool
from kernels_pallas.kv_cache.reference import append_rows, read_lane
from kernels_pallas.paged_attention.partials import HIDDEN, Partials, used_parts

_LOG2_E = 1.4426950408889634


class Parts(NamedTuple):
    """A row of the attention projection, cut. Per head a query and a gate, then keys, then values."""

    query: jax.Array
    """[M, h, d]"""
    gate: jax.Array
    """[M, h, d]"""
    key: jax.Array
    """[M, kv, d]"""
    value: jax.Array
    """[M, kv, d]"""


def query_heads(columns: int, heads: int, width: int) -> int:
    """h of a projection with so many columns: 2 * h * d + 2 * kv * d."""
    return (columns - 2 * heads * width) // (2 * width)


def parts(projected: jax.Array, heads: int, width: int) -> Parts:
    """Cut projected [M, 2 * h * d + 2 * kv * d] for kv = `heads`."""
    rows, columns = projected.shape
    queries = query_heads(columns, heads, width)
    gated, key, value = jnp.split(projected, [2 * queries * width, columns - heads * width], axis=1)
    gated = gated.reshape(rows, queries, 2, width)
    return Parts(gated[:, :, 0], gated[:, :, 1], key.reshape(rows, heads, width), value.reshape(rows, heads, width))


def norm_and_rotate(x: jax.Array, gain: jax.Array, cos: jax.Array, sin: jax.Array, eps: float) -> jax.Array:
    """x [M, heads, d] normed per head with gain [d], its leading dimensions rotated by cos and sin [M, rotary / 2]."""
    normed = x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * gain
    half = cos.shape[-1]
    first, second, rest = normed[..., :half], normed[..., half : 2 * half], normed[..., 2 * half :]
    cos, sin = cos[:, None], sin[:, None]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


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
) -> tuple[Partials, KvPool]:
    """See the package. One split beside the new token; every row is computed alone: its neighbours change no bit."""
    cut = parts(projected, pool.heads, pool.width)
    query = norm_and_rotate(cut.query, norms[0][layer[0]], cos, sin, eps) * (pool.width**-0.5 * _LOG2_E)
    key = norm_and_rotate(cut.key, norms[1][layer[0]], cos, sin, eps)
    lane_rows = projected.shape[0] // tables.shape[0]
    tables, starts = jnp.repeat(tables, lane_rows, axis=0), jnp.repeat(positions[::lane_rows], lane_rows)
    at = jnp.maximum(positions, 0)
    own = jnp.take_along_axis(tables, (at // PAGE_TOKENS)[:, None], axis=1)[:, 0]
    pool = append_rows(pool, layer, key, cut.value, jnp.where(positions >= 0, own, -1), at % PAGE_TOKENS)

    def row(inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        query, table, start, position = inputs
        keys, values = read_lane(pool, layer, table)
        number = jnp.arange(keys.shape[0])
        logits = jnp.einsum("kgd,nkd->kgn", query.reshape(pool.heads, -1, pool.width), keys)
        new = _part(logits, values, (number >= start) & (number <= position))
        before = _part(logits, values, number < start)
        mixed, weights = (jnp.stack(both) for both in zip(new, before, strict=True))
        return mixed.reshape(2, *query.shape), weights.reshape(2, -1)

    mixed, weights = lax.map(row, (query, tables, starts, positions))
    return Partials(mixed=mixed, weights=weights, positions=positions, lane_rows=lane_rows), pool


def _part(logits: jax.Array, values: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Softmax of logits [kv, g, n] over the keys that are seen [n], times values [n, kv, d]; and its weight [kv, g]."""
    logits = jnp.where(seen, logits, HIDDEN)
    best = jnp.max(logits, axis=-1, keepdims=True)
    shares = jnp.where(seen, jnp.exp2(logits - best), 0.0)
    total = jnp.sum(shares, axis=-1, keepdims=True)
    mixed = jnp.einsum("kgn,nkd->kgd", shares, jnp.where(seen[:, None, None], values, 0.0))
    return mixed / jnp.where(total > 0, total, 1.0), (best + jnp.log2(total))[..., 0]


def combine(partials: Partials, projected: jax.Array, out_dtype: DTypeLike) -> jax.Array:
    """Sum of the parts times the sigmoid of the gate, [M, h * d]; zeros for padding."""
    rows, number, queries, width = partials.mixed.shape
    starts = jnp.repeat(partials.positions[:: partials.lane_rows], partials.lane_rows)
    used = used_parts(starts, partials.positions, number)
    real = (jnp.arange(number) < used[:, None])[:, :, None]
    weights = jnp.where(real, partials.weights, HIDDEN)
    shares = jnp.where(real, jnp.exp2(weights - jnp.max(weights, axis=1, keepdims=True)), 0.0)
    mixed = jnp.sum(jnp.where(real[..., None], partials.mixed, 0.0) * shares[..., None], axis=1)
    total = jnp.sum(shares, axis=1)[..., None]
    gate = projected[:, : 2 * queries * width].reshape(rows, queries, 2, width)[:, :, 1]
    attended = mixed / jnp.where(total > 0, total, 1.0) * jax.nn.sigmoid(gate)
    return attended.reshape(rows, queries * width).astype(out_dtype)
