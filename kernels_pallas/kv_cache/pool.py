"""The pool of key and value pages of all attention layers.

A page holds `PAGE_TOKENS` tokens of one sequence for every kv head: keys token by token, values dimension by dimension
(transposed), so that each of the two products of attention reads the codes that it multiplies together as neighbours.
A page is the same index of axis 1 in all four arrays: whoever moves pages needs to know nothing else.

Symbols: L layers, P pages, kv key-value heads, d head width.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax.tree_util import register_dataclass

from kernels_pallas.kv_cache.formats import StorageFormat, storage_format

PAGE_TOKENS = 64
"""Tokens of a page. The engine's prefix blocks have the same size."""

_GIB = 1 << 30


@register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class KvPool:
    """Keys and values of every attention layer, by page. Donate it: kernels write it in place."""

    keys: jax.Array
    """[L, P, kv, 64, d], normed and rotated"""
    values: jax.Array
    """[L, P, kv, d, 64], as projected"""
    key_scales: jax.Array | None
    """float32 [L, P, kv, 64] in scaled formats"""
    value_scales: jax.Array | None
    """float32 [L, P, kv, 64] in scaled formats"""
    format: str = dataclasses.field(metadata={"static": True})
    """A name of `FORMATS`"""

    @property
    def storage(self) -> StorageFormat:
        """The facts of its format."""
        return storage_format(self.format)

    @property
    def pages(self) -> int:
        """Pages of one layer."""
        return self.keys.shape[1]

    @property
    def heads(self) -> int:
        """Key-value heads."""
        return self.keys.shape[2]

    @property
    def width(self) -> int:
        """Numbers of a head."""
        return self.keys.shape[4]

    def arrays(self) -> tuple[jax.Array, ...]:
        """Its arrays without the scales that an unscaled format lacks."""
        return tuple(jax.tree.leaves(self))


def page_bytes(name: str, *, layers: int, heads: int, width: int) -> int:
    """Bytes of one page over all layers and heads, keys and values and scales."""
    return layers * heads * PAGE_TOKENS * 2 * storage_format(name).row_bytes(width)


def allocated_pages(name: str, pages: int, *, layers: int, heads: int, width: int) -> int:
    """Pages that `zero_pool` really allocates for so many: more only where an array would have 2 to 4 GiB of bytes.

    Kernels index arrays of up to 2**32 bytes with signed 32-bit element offsets (Pallas-Triton's choice, larger ones
    get 64 bits), so an array of one-byte codes must stay below 2**31 elements or exceed 2**32.
    """
    gap = unindexable_pages(name, layers=layers, heads=heads, width=width)
    return gap.stop if pages in gap else pages


def unindexable_pages(name: str, *, layers: int, heads: int, width: int) -> range:
    """Numbers of pages that a pool cannot have, because kernels could not index it; empty for most formats."""
    page_codes = layers * heads * PAGE_TOKENS * width
    if storage_format(name).code_bytes > 1:
        return range(0)
    return range(-(-2 * _GIB // page_codes), 4 * _GIB // page_codes + 1)


def zero_pool(name: str, *, layers: int, pages: int, heads: int, width: int) -> KvPool:
    """A pool of zeros, traceable: jit it to make it on the device. It has `allocated_pages` pages, at least `pages`."""
    fmt = storage_format(name)
    pages = allocated_pages(name, pages, layers=layers, heads=heads, width=width)
    scales = (layers, pages, heads, PAGE_TOKENS)
    return KvPool(
        keys=jnp.zeros((layers, pages, heads, PAGE_TOKENS, width), fmt.dtype),
        values=jnp.zeros((layers, pages, heads, width, PAGE_TOKENS), fmt.dtype),
        key_scales=jnp.zeros(scales, jnp.float32) if fmt.scaled else None,
        value_scales=jnp.zeros(scales, jnp.float32) if fmt.scaled else None,
        format=name,
    )
