"""Writing a prompt chunk into pages, Pallas-Triton: one program encodes one page's tokens of one head."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.blocks import whole
from kernels_pallas.kv_cache.codes import encode_rows
from kernels_pallas.kv_cache.formats import StorageFormat
from kernels_pallas.kv_cache.pool import PAGE_TOKENS, KvPool

_WARPS = 8


def append_chunk(
    pool: KvPool,
    layer: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    pages: jax.Array,
    start: jax.Array,
    count: jax.Array,
    *,
    interpret: bool = False,
) -> KvPool:
    """See the package."""
    tokens, heads, width = keys.shape
    if pool.format == "fp32" or width & (width - 1):
        raise NotImplementedError(f"the append kernel cannot do format {pool.format} with head width {width}")
    span = jnp.stack([jnp.asarray(start, jnp.int32), jnp.asarray(count, jnp.int32)])
    inputs, arrays = (keys, values, layer, pages, span), pool.arrays()
    # A chunk that starts within a page touches one page more.
    touched = min((tokens + PAGE_TOKENS - 1) // PAGE_TOKENS + 1, pages.shape[0])
    written = pl.pallas_call(
        functools.partial(_kernel, fmt=pool.storage, exact=interpret),
        grid=(touched, heads),
        in_specs=[whole(array) for array in (*inputs, *arrays)],
        out_specs=[whole(array) for array in arrays],
        out_shape=[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays],
        input_output_aliases={len(inputs) + i: i for i in range(len(arrays))},
        compiler_params=plt.CompilerParams(num_warps=_WARPS, num_stages=1),
        interpret=interpret,
        name="append_chunk",
    )(*inputs, *arrays)
    written_pool: KvPool = jax.tree.unflatten(jax.tree.structure(pool), written)
    return written_pool


def _kernel(
    keys: Any, values: Any, layer_ref: Any, pages: Any, span: Any, *refs: Any, fmt: StorageFormat, exact: bool
) -> None:
    pool = refs[len(refs) // 2 :]
    number, head = pl.program_id(0), pl.program_id(1)
    start, count = span[0], span[1]
    index = lax.div(start, PAGE_TOKENS) + number
    slot = lax.broadcasted_iota(jnp.int32, (PAGE_TOKENS,), 0)
    token = index * PAGE_TOKENS - start + slot
    real = (token >= 0) & (token < count)

    @pl.when(index * PAGE_TOKENS < start + count)
    def _() -> None:
        layer, page = layer_ref[0], pages[index]
        dims = lax.broadcasted_iota(jnp.int32, (1, keys.shape[2]), 1)
        mask = jnp.broadcast_to(real[:, None], (PAGE_TOKENS, keys.shape[2]))
        for part, source in enumerate((keys, values)):
            rows = plt.load(source.at[token[:, None], head, dims], mask=mask, other=0)
            codes, scales = encode_rows(rows.astype(jnp.float32), fmt, exact=exact)
            at = (slot[:, None], dims) if part == 0 else (dims, slot[:, None])
            plt.store(pool[part].at[(layer, page, head, *at)], codes, mask=mask)
            if scales is not None:
                plt.store(pool[2 + part].at[layer, page, head, slot], scales, mask=real)
