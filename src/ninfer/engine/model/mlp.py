"""The gated feed-forward of a block."""

import jax

from ninfer.engine.model.elementary import silu
from ninfer.engine.model.reduce import linear
from ninfer.engine.model.weights import MlpWeights


def mlp(weights: MlpWeights, x: jax.Array) -> jax.Array:
    """down(silu(gate x) * up x): x [..., H] -> [..., H]."""
    return linear(silu(linear(x, weights.gate_proj)) * linear(x, weights.up_proj), weights.down_proj)
