"""A decode step's attention of the 27B, as shapes."""

from __future__ import annotations

import jax

from kernels_pallas.kv_cache.pool import KvPool
from kernels_pallas.kv_cache.specs import (
    HEADS,
    LAYERS,
    QUERIES,
    ROTARY,
    TABLE_PAGES,
    WIDTH,
    integers,
    numbers,
    pool_spec,
)

Specs = tuple[jax.ShapeDtypeStruct | tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct] | KvPool, ...]


def decode_specs(name: str, rows: int) -> Specs:
    """Arguments of `attend_rows` by position: projected, pool, norms, layer, tables, positions, cos, sin."""
    gains = numbers(LAYERS, WIDTH)
    half = numbers(rows, ROTARY // 2)
    projected = numbers(rows, 2 * (QUERIES + HEADS) * WIDTH)
    tables = integers(rows, TABLE_PAGES)
    return projected, pool_spec(name), (gains, gains), integers(1), tables, integers(rows), half, half
