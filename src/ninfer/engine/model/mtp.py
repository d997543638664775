"""The multi-token prediction head: how it joins a hidden state to the next token's embedding.

What follows is one ordinary attention block, the head's own final norm and the trunk's head; callers run those with
the functions that run the trunk (model facts, section 7).
"""

import jax
import jax.numpy as jnp

from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.norms import rms_norm
from ninfer.engine.model.reduce import linear
from ninfer.engine.model.weights import MtpWeights


def join_inputs(config: TextConfig, weights: MtpWeights, hidden: jax.Array, embedded: jax.Array) -> jax.Array:
    """hidden [..., H] of position t after the trunk's final norm, embedded [..., H] of token t + 1 -> [..., H]."""
    parts = [
        rms_norm(embedded, weights.embedding_norm, config.rms_norm_eps),
        rms_norm(hidden, weights.hidden_norm, config.rms_norm_eps),
    ]
    return linear(jnp.concatenate(parts, axis=-1), weights.fc)
