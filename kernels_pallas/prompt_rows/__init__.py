"""What a prompt's rows go through between its products: the norm, the delta net's gates, the heads of attention.

Small work, but of every row, and XLA cuts it by the number of rows: then a row's bits could depend on how long its
chunk is. Knows rows and gains, not layers' meanings. Invariant: a row's bits depend on that row alone.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from kernels_pallas.dispatch import Impl, choose

from . import reference, triton

__all__ = ["Heads", "gates", "heads", "normalise"]


class Heads(NamedTuple):
    """The rows of an attention layer, ready for `kv_cache.append_chunk` and `chunk_attention`."""

    query: jax.Array
    """[T, h, d], normed and rotated"""
    key: jax.Array
    """float32 [T, kv, d], normed and rotated"""
    value: jax.Array
    """[T, kv, d], in the type of the projection"""


def normalise(
    residual: jax.Array,
    gains: jax.Array,
    index: jax.Array,
    *,
    eps: float,
    out_dtype: DTypeLike,
    impl: Impl = "auto",
) -> jax.Array:
    """residual * rsqrt(mean of its squares + eps) * gains[index]: residual float32 [T, H] -> `out_dtype` [T, H].

    gains float32 [G, H], index int32 [1]. Float16 is not clamped: a normed row is at most sqrt(H) times its gain.
    """
    run = choose(impl, {"reference": reference.normalise, "triton": triton.normalise})
    return run(residual, gains, index, eps=eps, out_dtype=jnp.dtype(out_dtype))


def gates(x: jax.Array, weights: jax.Array, layer: jax.Array, *, impl: Impl = "auto") -> jax.Array:
    """x @ weights[layer].T, float32 [T, N], for an N that is too small for the prefill matmul.

    x float16 or bfloat16 [T, K], T a multiple of 64; weights [L, N, K], rounded to x's type; layer int32 [1].
    Raises NotImplementedError for an N or a K that the kernel cannot cut.
    """
    return choose(impl, {"reference": reference.gates, "triton": triton.gates})(x, weights, layer)


def heads(
    projected: jax.Array,
    query_gains: jax.Array,
    key_gains: jax.Array,
    layer: jax.Array,
    tables: tuple[jax.Array, jax.Array],
    *,
    groups: int,
    eps: float,
    out_dtype: DTypeLike,
    impl: Impl = "auto",
) -> Heads:
    """Queries, keys and values of T rows: the norm of each head, then the rotation of its first dimensions.

    projected [T, 2 h d + 2 kv d], per head d of query and d of gate, then keys, then values; gains float32 [L, d];
    layer int32 [1]; tables: cosines and sines float32 [T, rotary / 2]; groups: kv, heads of keys.
    Raises NotImplementedError for a head width that the kernel cannot cut.
    """
    run = choose(impl, {"reference": reference.heads, "triton": triton.heads})
    query, key, value = run(
        projected, query_gains, key_gains, layer, tables, groups=groups, eps=eps, out_dtype=jnp.dtype(out_dtype)
    )
    return Heads(query, key, value)
