"""Plain JAX meaning of what a prompt's rows go through: what the kernels are judged by, and what runs without a GPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

Arrays = tuple[jax.Array, jax.Array, jax.Array]


def normalise(
    residual: jax.Array, gains: jax.Array, index: jax.Array, *, eps: float, out_dtype: jnp.dtype
) -> jax.Array:
    """See the package."""
    return _normed(residual, gains[index[0]], eps).astype(out_dtype)


def gates(x: jax.Array, weights: jax.Array, layer: jax.Array) -> jax.Array:
    """See the package."""
    own = lax.dynamic_index_in_dim(weights, layer[0], keepdims=False)
    return jnp.matmul(x, own.astype(x.dtype).T, preferred_element_type=jnp.float32)


def heads(
    projected: jax.Array,
    query_gains: jax.Array,
    key_gains: jax.Array,
    layer: jax.Array,
    tables: tuple[jax.Array, jax.Array],
    *,
    groups: int,
    eps: float,
    out_dtype: jnp.dtype,
) -> Arrays:
    """See the package."""
    tokens, width = projected.shape[0], query_gains.shape[1]
    queries = projected.shape[1] // (2 * width) - groups
    gated, key, value = jnp.split(projected, [2 * queries * width, (2 * queries + groups) * width], axis=-1)
    query = gated.reshape(tokens, queries, 2, width)[:, :, 0].astype(jnp.float32)
    key = key.reshape(tokens, groups, width).astype(jnp.float32)
    query = _rotated(_normed(query, query_gains[layer[0]], eps), tables)
    key = _rotated(_normed(key, key_gains[layer[0]], eps), tables)
    return query.astype(out_dtype), key, value.reshape(tokens, groups, width)


def _normed(x: jax.Array, gain: jax.Array, eps: float) -> jax.Array:
    return x * lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps) * gain


def _rotated(x: jax.Array, tables: tuple[jax.Array, jax.Array]) -> jax.Array:
    """x [T, heads, d], of which dimension p turns with p + rotary / 2."""
    cos, sin = (table[:, None, :] for table in tables)
    half = cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)
