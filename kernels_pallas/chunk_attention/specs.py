"""A prompt chunk's attention of the 27B, as shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from kernels_pallas.kv_cache.pool import KvPool
from kernels_pallas.kv_cache.specs import QUERIES, TABLE_PAGES, WIDTH, integers, pool_spec


def chunk_specs(name: str, tokens: int) -> tuple[jax.ShapeDtypeStruct | KvPool, ...]:
    """Arguments of `attend_chunk` by position: query, pool, layer, pages, start, count."""
    dtype = jnp.bfloat16 if name == "bf16" else jnp.float16
    query = jax.ShapeDtypeStruct((tokens, QUERIES, WIDTH), dtype)
    return query, pool_spec(name), integers(1), integers(TABLE_PAGES), integers(), integers()
