"""Plain JAX meaning of a prompt chunk's attention over paged keys; slow, float32, and what kernels are judged by.

Symbols: T tokens, h query heads, kv key-value heads, d head width, P pages of the lane's table.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from kernels_pallas.kv_cache.pool import PAGE_TOKENS, KvPool
from kernels_pallas.kv_cache.reference import read_lane

_HIDDEN = -1e30


def attend_chunk(
    query: jax.Array, pool: KvPool, layer: jax.Array, pages: jax.Array, start: jax.Array, count: jax.Array
) -> jax.Array:
    """See the package. Tiles of 64 rows are computed one by one, so T changes no bit."""
    tokens, queries, width = query.shape
    keys, values = read_lane(pool, layer, pages)
    seen = jnp.arange(keys.shape[0])

    def tile(inputs: tuple[jax.Array, jax.Array]) -> jax.Array:
        index, rows = inputs
        local = index * PAGE_TOKENS + jnp.arange(PAGE_TOKENS)
        real = local < count
        visible = (seen <= (start + local)[:, None]) & real[:, None]
        grouped = rows.astype(jnp.float32).reshape(PAGE_TOKENS, pool.heads, -1, width) * width**-0.5
        scores = jnp.einsum("tkgd,nkd->kgtn", grouped, keys)
        scores = jnp.where(visible, scores, _HIDDEN)
        shares = jnp.where(visible, jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True)), 0.0)
        total = jnp.sum(shares, axis=-1)
        # Stale memory behind the last token may hold anything: 0 * NaN is NaN.
        known = jnp.where((seen < start + count)[:, None, None], values, 0.0)
        mixed = jnp.einsum("kgtn,nkd->kgtd", shares, known) / jnp.where(total > 0, total, 1.0)[..., None]
        return mixed.transpose(2, 0, 1, 3).reshape(rows.shape)

    tiles = query.reshape(tokens // PAGE_TOKENS, PAGE_TOKENS, queries, width)
    out: jax.Array = lax.map(tile, (jnp.arange(tokens // PAGE_TOKENS), tiles))
    return out.reshape(query.shape).astype(query.dtype)
