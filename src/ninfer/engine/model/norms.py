"""Root-mean-square norms. Arithmetic in float32, result in the input's dtype; sums are halving trees."""

import jax
import jax.numpy as jnp

from ninfer.engine.model.elementary import silu
from ninfer.engine.model.reduce import rounded, tree_sum

L2_EPSILON = 1e-6
"""Added to the squared length of delta-rule queries and keys."""


def _unit_rms(x: jax.Array, eps: float) -> jax.Array:
    mean_square = rounded(tree_sum(x * x) * (1.0 / x.shape[-1]))
    return x / jnp.sqrt(mean_square + eps)[..., None]


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """x [..., n] with gain 1 + weight [n]: trunk, query, key and MTP norms store their gain around zero."""
    return (_unit_rms(x.astype(jnp.float32), eps) * (1.0 + weight.astype(jnp.float32))).astype(x.dtype)


def gated_rms_norm(x: jax.Array, gate: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """x [..., n] with plain gain weight [n], times silu(gate [..., n]): the delta net's output norm."""
    normed = _unit_rms(x.astype(jnp.float32), eps) * weight.astype(jnp.float32)
    return (normed * silu(gate.astype(jnp.float32))).astype(gate.dtype)


def l2_normalise(x: jax.Array) -> jax.Array:
    """x [..., n] float32, divided by its length."""
    return x / jnp.sqrt(tree_sum(x * x) + L2_EPSILON)[..., None]
