"""The pool of the 27B on one H200, as shapes: what tests compile for and benches allocate."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from kernels_pallas.kv_cache.pool import KvPool, zero_pool

LAYERS, HEADS, WIDTH = 16, 4, 256
QUERIES, ROTARY = 24, 64
TABLE_PAGES = 4096
"""262,144 tokens"""


def pool_spec(name: str, pages: int = 5000) -> KvPool:
    """A pool of shapes; 5000 pages are 320,000 tokens."""
    pool: KvPool = jax.eval_shape(lambda: zero_pool(name, layers=LAYERS, pages=pages, heads=HEADS, width=WIDTH))
    return pool


def integers(*shape: int) -> jax.ShapeDtypeStruct:
    """int32 of a shape."""
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def numbers(*shape: int) -> jax.ShapeDtypeStruct:
    """float32 of a shape."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)
