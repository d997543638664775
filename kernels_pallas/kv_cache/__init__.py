"""Keys and values in pages: storage formats, the pool, and writing a prompt chunk into it.

`paged_attention` writes the rows of a decode step itself; `chunk_attention` reads what `append_chunk` wrote.
"""

from __future__ import annotations

import jax

from kernels_pallas.dispatch import Impl, choose
from kernels_pallas.kv_cache import reference, triton
from kernels_pallas.kv_cache.formats import FORMATS, StorageFormat, storage_format
from kernels_pallas.kv_cache.pool import PAGE_TOKENS, KvPool, allocated_pages, page_bytes, unindexable_pages, zero_pool

__all__ = [
    "FORMATS",
    "PAGE_TOKENS",
    "KvPool",
    "StorageFormat",
    "allocated_pages",
    "append_chunk",
    "page_bytes",
    "storage_format",
    "unindexable_pages",
    "zero_pool",
]


def append_chunk(
    keys: jax.Array,
    values: jax.Array,
    pool: KvPool,
    layer: jax.Array,
    pages: jax.Array,
    start: jax.Array,
    count: jax.Array,
    *,
    impl: Impl = "auto",
) -> KvPool:
    """Write a prompt chunk's keys and values into one lane's pages of one layer, in place where the pool is donated.

    keys (normed, rotated) and values [T, kv, d] of any float type; layer int32 [1]; pages int32 [P], the lane's table,
    which must cover start + count; start, count int32 scalars. The first `count` tokens are written at positions
    start, start + 1, ...; the others nowhere.

    Raises:
        ValueError: there is no implementation of that name.
        NotImplementedError: the kernel cannot do this shape or format; the message says which.
    """
    implementations = {"reference": reference.append_chunk, "triton": triton.append_chunk}
    return choose(impl, implementations)(pool, layer, keys, values, pages, start, count)
