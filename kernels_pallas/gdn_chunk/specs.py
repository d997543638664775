"""Real shapes of the delta net in a prefill, for tests, benches and compilations without a device."""

from typing import TypeAlias

import jax
import jax.numpy as jnp

from kernels_pallas.gdn_step.specs import HIDDEN_27B, LAYERS_27B, SIZES_27B, state_27b, zero_weights
from kernels_pallas.gdn_step.state import GdnState, GdnWeights

ChunkArguments: TypeAlias = tuple[
    jax.Array, jax.Array, GdnState, GdnWeights, jax.Array, jax.Array, jax.Array, jax.Array
]


def chunk_specs(tokens: int) -> ChunkArguments:
    """ShapeDtypeStructs of `gdn_chunk`'s arguments for the 27B model."""

    def arguments() -> ChunkArguments:
        scores = jnp.zeros((tokens, 2 * SIZES_27B.value_heads), jnp.float32)
        projected = jnp.zeros((tokens, SIZES_27B.channels + SIZES_27B.values), jnp.float16)
        number = jnp.zeros((1,), jnp.int32)
        weights = zero_weights(LAYERS_27B, SIZES_27B, HIDDEN_27B)
        return projected, scores, state_27b(), weights, number, number, number, number

    specs: ChunkArguments = jax.eval_shape(arguments)
    return specs
