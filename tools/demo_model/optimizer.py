"""Muon for matrices, Adam for everything else, as one optax transformation that yields updates for a rate of 1.

Muon's update of a matrix is its momentum made orthogonal; scaled to Adam's usual size, both share one learning rate.
Stacked layers are handled in one batched product. Knows nothing of the schedule: the caller multiplies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class MuonState(NamedTuple):
    """momentum: like the gradients."""

    momentum: Any


def orthogonal(m: jax.Array) -> jax.Array:
    """Five Newton-Schulz steps on [..., r, c]: singular values near 1."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = m.astype(jnp.bfloat16)
    turned = m.shape[-2] > m.shape[-1]
    x = jnp.swapaxes(x, -1, -2) if turned else x
    x = x / (jnp.sqrt(jnp.sum(jnp.square(x.astype(jnp.float32)), (-2, -1), keepdims=True)) + 1e-7).astype(x.dtype)
    for _ in range(5):
        gram = x @ jnp.swapaxes(x, -1, -2)
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return (jnp.swapaxes(x, -1, -2) if turned else x).astype(jnp.float32)


def scale_by_muon(beta: float = 0.95) -> optax.GradientTransformation:
    """Nesterov momentum, made orthogonal, scaled to a root mean square of 0.2."""

    def init(params: Any) -> MuonState:
        return MuonState(jax.tree.map(jnp.zeros_like, params))

    def update(grads: Any, state: MuonState, params: Any = None) -> tuple[Any, MuonState]:
        momentum = jax.tree.map(lambda m, g: beta * m + (1 - beta) * g, state.momentum, grads)
        ahead = jax.tree.map(lambda m, g: beta * m + (1 - beta) * g, momentum, grads)
        return jax.tree.map(lambda m: orthogonal(m) * (0.2 * max(m.shape[-2:]) ** 0.5), ahead), MuonState(momentum)

    return optax.GradientTransformation(init, update)


MATRICES = frozenset(("qkv", "z", "out", "q", "k", "v", "o", "gate", "up", "down", "fc"))


def kinds(params: Any) -> Any:
    """muon or adam for each leaf, by its name."""
    return jax.tree_util.tree_map_with_path(lambda path, _: "muon" if path[-1].key in MATRICES else "adam", params)


def build(weight_decay: float = 0.05, clip: float = 1.0) -> optax.GradientTransformation:
    """Descent directions for a rate of 1."""
    return optax.chain(
        optax.clip_by_global_norm(clip),
        optax.multi_transform(
            {
                "muon": optax.chain(scale_by_muon(), optax.add_decayed_weights(weight_decay)),
                "adam": optax.scale_by_adam(b1=0.9, b2=0.95, eps=1e-10),
            },
            kinds,
        ),
        optax.scale(-1.0),
    )
