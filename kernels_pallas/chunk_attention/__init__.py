"""Attention of a prompt chunk over the paged keys of its lane.

The chunk's own keys must be in the pool already (`kv_cache.append_chunk`).
Invariant: a row's result depends on its position and keys alone, not on where chunks were cut or how long they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax

from kernels_pallas.chunk_attention import reference, triton
from kernels_pallas.dispatch import Impl, choose
from kernels_pallas.kv_cache import KvPool

__all__ = ["DEFAULT_SPLIT_WORKSPACE_BYTES", "attend_chunk"]

DEFAULT_SPLIT_WORKSPACE_BYTES = 256 << 20


def attend_chunk(
    query: jax.Array,
    pool: KvPool,
    layer: jax.Array,
    pages: jax.Array,
    start: jax.Array,
    count: jax.Array,
    *,
    split_workspace_bytes: int = DEFAULT_SPLIT_WORKSPACE_BYTES,
    impl: Impl = "auto",
) -> jax.Array:
    """Causal attention of T tokens of one lane: query [T, h, d] float16 or bfloat16 -> the same shape and type.

    query: normed and rotated, not scaled (products are multiplied by d ** -0.5 here); T a multiple of 64; layer int32
    [1]; pages int32 [P], the lane's table; start int32 scalar, a multiple of 64: the position of row 0; count int32
    scalar: real rows. Row t sees keys at positions up to start + t. Rows from `count` on hold finite numbers of no
    meaning. `split_workspace_bytes`: memory for float32 partials when a short chunk's keys are split over the GPU, more
    than that is not used (the keys are then walked by one program); no choice here changes a bit of a result.

    Raises:
        ValueError: there is no implementation of that name.
        NotImplementedError: the kernel cannot do this shape or format; the message says which.
    """
    implementations: dict[str, Callable[..., jax.Array]] = {
        "reference": reference.attend_chunk,
        "triton": functools.partial(triton.attend_chunk, split_workspace_bytes=split_workspace_bytes),
    }
    return choose(impl, implementations)(query, pool, layer, pages, start, count)
