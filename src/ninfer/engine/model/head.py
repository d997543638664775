"""Both ends of the trunk: token ids to rows, final rows to logits."""

import jax
import jax.numpy as jnp

from ninfer.engine.model.reduce import linear
from ninfer.engine.model.weights import TextWeights


def embed(weights: TextWeights, tokens: jax.Array) -> jax.Array:
    """int32 [...] -> [..., H]. No scale."""
    return weights.embed[tokens]


def logits(weights: TextWeights, normed: jax.Array, used_tokens: int | None = None) -> jax.Array:
    """Final normed rows [..., H] -> [..., V]; ids from `used_tokens` on (rows without a token) are -inf."""
    matrix = weights.embed if weights.head is None else weights.head
    scores = linear(normed, matrix)
    if used_tokens is None or used_tokens >= matrix.shape[0]:
        return scores
    return jnp.where(jnp.arange(matrix.shape[0]) < used_tokens, scores, -jnp.inf)
