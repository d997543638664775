"""Real shapes of the delta net, for tests, benches and compilations without a device."""

from typing import TypeAlias

import jax
import jax.numpy as jnp

from kernels_pallas.arrays import Activation
from kernels_pallas.gdn_step.state import CONV_TAPS, GdnSizes, GdnState, GdnWeights, zero_state

SIZES_27B = GdnSizes(key_heads=16, value_heads=48, key_dim=128, value_dim=128)
HIDDEN_27B, LAYERS_27B = 5120, 48

StepArguments: TypeAlias = tuple[jax.Array, Activation, GdnState, GdnWeights, jax.Array, jax.Array, jax.Array]


def zero_weights(layers: int, sizes: GdnSizes, hidden: int) -> GdnWeights:
    """Weights of the right shapes."""
    return GdnWeights(
        ab=jnp.zeros((layers, 2 * sizes.value_heads, hidden), jnp.bfloat16),
        conv=jnp.zeros((layers, CONV_TAPS, sizes.channels), jnp.float32),
        a_log=jnp.zeros((layers, sizes.value_heads), jnp.float32),
        dt_bias=jnp.zeros((layers, sizes.value_heads), jnp.float32),
        norm=jnp.zeros((layers, sizes.value_dim), jnp.float32),
    )


def state_27b(layers: int = LAYERS_27B, slots: int = 9) -> GdnState:
    """An empty state of the 27B model."""
    sizes = SIZES_27B
    return zero_state(
        layers=layers,
        slots=slots,
        value_heads=sizes.value_heads,
        key_dim=sizes.key_dim,
        value_dim=sizes.value_dim,
        channels=sizes.channels,
    )


def step_specs(rows: int) -> StepArguments:
    """ShapeDtypeStructs of `gdn_step`'s arguments for the 27B model."""

    def arguments() -> StepArguments:
        x = Activation(
            values=jnp.zeros((rows, HIDDEN_27B), jnp.float16),
            squares=jnp.zeros((rows, HIDDEN_27B // 16), jnp.float32),
            shift=6,
            eps=1e-6,
        )
        projected = jnp.zeros((rows, SIZES_27B.channels + SIZES_27B.values), jnp.float32)
        weights = zero_weights(LAYERS_27B, SIZES_27B, HIDDEN_27B)
        layer, numbers = jnp.zeros((1,), jnp.int32), jnp.zeros((rows,), jnp.int32)
        return projected, x, state_27b(), weights, layer, numbers, numbers

    specs: StepArguments = jax.eval_shape(arguments)
    return specs
