"""Partial rotary positions in the interleaved three-axis form (MRoPE).

Pair p couples dimensions p and p + rotary/2 and follows one of three axes: height when p mod 3 is 1, width when it is
2, as long as that axis has pairs left, else temporal. Text has three equal axes, which makes it ordinary rotation.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.reduce import rounded
from ninfer.engine.model.yarn import attention_scale, stretched_frequencies


def pair_axes(config: TextConfig) -> np.ndarray:
    """Axis (0 temporal, 1 height, 2 width) of each rotary pair, int32 [rotary_dims / 2]."""
    pairs = np.arange(config.rotary_dims // 2)
    axes = np.zeros(pairs.shape, np.int32)
    for axis in (1, 2):
        axes[(pairs % 3 == axis) & (pairs < 3 * config.mrope_section[axis])] = axis
    return axes


def rotary_tables(config: TextConfig, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines, float32 [..., rotary_dims / 2], of int32 positions [3, ...], one row per axis."""
    by_pair = jnp.moveaxis(positions[pair_axes(config)], 0, -1)
    angles = rounded(by_pair.astype(jnp.float32) * jnp.asarray(_frequencies(config)))
    if config.rope_yarn_factor == 1.0:
        return jnp.cos(angles), jnp.sin(angles)
    scale = jnp.float32(attention_scale(config.rope_yarn_factor))
    return jnp.cos(angles) * scale, jnp.sin(angles) * scale


def _frequencies(config: TextConfig) -> np.ndarray:
    """Angle per position of each pair, float32 [rotary_dims / 2]. Without YaRN not a bit of it may change."""
    if config.rope_yarn_factor != 1.0:
        return stretched_frequencies(config)
    exponents = np.arange(0, config.rotary_dims, 2, dtype=np.float32) / np.float32(config.rotary_dims)
    frequencies: np.ndarray = (1.0 / np.float32(config.rope_theta) ** exponents).astype(np.float32)
    return frequencies


def text_positions(positions: jax.Array) -> jax.Array:
    """int32 [...] -> [3, ...]: text has the same position on all three axes."""
    return jnp.broadcast_to(positions, (3, *positions.shape))


def rotate(x: jax.Array, tables: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Rotate the leading dimensions of every head: x [..., heads, d], tables [..., rotary / 2] each."""
    cos, sin = (table[..., None, :].astype(x.dtype) for table in tables)
    half = cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]

    def turned(along: jax.Array, across: jax.Array) -> jax.Array:
        return rounded(along * cos) - rounded(across * sin)

    return jnp.concatenate([turned(first, second), turned(second, -first), rest], axis=-1)
