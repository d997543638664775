"""Plain JAX meaning of reading and writing the pool; slow, and what kernels are judged by.

Symbols: R rows (tokens), L layers, kv key-value heads, d head width. `layer` is an int32 [1] array.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from kernels_pallas.kv_cache.formats import decode, encode
from kernels_pallas.kv_cache.pool import PAGE_TOKENS, KvPool


def append_rows(
    pool: KvPool, layer: jax.Array, keys: jax.Array, values: jax.Array, pages: jax.Array, offsets: jax.Array
) -> KvPool:
    """Write keys and values [R, kv, d] at (pages [R], offsets [R]); a row whose page is negative writes nothing."""
    at_page = jnp.where(pages >= 0, pages, pool.pages)  # beyond the pool: dropped
    key_codes, key_scales = encode(keys, pool.storage)
    value_codes, value_scales = encode(values, pool.storage)
    number = layer[0]

    def put_scales(old: jax.Array | None, new: jax.Array | None) -> jax.Array | None:
        if old is None or new is None:
            return old
        return old.at[number, at_page, :, offsets].set(new, mode="drop")

    return dataclasses.replace(
        pool,
        keys=pool.keys.at[number, at_page, :, offsets].set(key_codes, mode="drop"),
        values=pool.values.at[number, at_page, :, :, offsets].set(value_codes, mode="drop"),
        key_scales=put_scales(pool.key_scales, key_scales),
        value_scales=put_scales(pool.value_scales, value_scales),
    )


def append_chunk(
    pool: KvPool,
    layer: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    pages: jax.Array,
    start: jax.Array,
    count: jax.Array,
) -> KvPool:
    """Write the first `count` of keys and values [T, kv, d] at positions start + 0, 1, ... of one lane's `pages`."""
    tokens = jnp.arange(keys.shape[0], dtype=jnp.int32)
    positions = start + tokens
    own = pages[jnp.minimum(positions // PAGE_TOKENS, pages.shape[0] - 1)]
    return append_rows(pool, layer, keys, values, jnp.where(tokens < count, own, -1), positions % PAGE_TOKENS)


def read_lane(pool: KvPool, layer: jax.Array, pages: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Keys and values float32 [P * 64, kv, d] of one lane's pages int32 [P], whatever lies behind its last token."""
    keys, values = pool.keys[layer[0], pages], pool.values[layer[0], pages]
    key_scales = None if pool.key_scales is None else pool.key_scales[layer[0], pages]
    value_scales = None if pool.value_scales is None else pool.value_scales[layer[0], pages]
    by_token = [decode(keys, key_scales), decode(values.swapaxes(-1, -2), value_scales)]
    flat = (numbers.transpose(0, 2, 1, 3).reshape(-1, pool.heads, pool.width) for numbers in by_token)
    return next(flat), next(flat)
