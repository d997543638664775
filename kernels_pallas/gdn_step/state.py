"""What the delta net remembers and what it is made of, as stacks over layers: for the step and for the chunk kernels.

Knows shapes and nothing of who owns a slot. Invariant: nobody ever has to clear a slot. A sequence's first token, at
position 0, starts from zero whatever the slot holds; an input of the convolution from before position 0 counts as zero.

Symbols: L layers, Hv value heads, Hk key heads, dk and dv their widths, C convolution channels (Hk dk queries, Hk dk
keys, Hv dv values), H the width of the model.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

CONV_TAPS = 4
"""Width of the causal convolution; also the length of the ring that holds its inputs."""

L2_EPSILON = 1e-6
"""Added to the squared length of queries and keys (model facts, section 5)."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class GdnState:
    """State of all slots, changed in place by the kernels: donate it."""

    recurrent: jax.Array
    """float32 [L, slots, Hv, dk, dv]"""
    conv: jax.Array
    """float32 [L, slots, 4, C]: the convolution's input at position p lies in row p % 4. A step reads three rows and
    writes the fourth, so that the programs of one launch cannot disturb each other."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class GdnWeights:
    """Weights beside the projections."""

    ab: jax.Array
    """bfloat16 [L, 2 Hv, H]: the rows of a (decay), then those of b (write strength)"""
    conv: jax.Array
    """float32 [L, 4, C], the newest token's tap last"""
    a_log: jax.Array
    """float32 [L, Hv]"""
    dt_bias: jax.Array
    """float32 [L, Hv]"""
    norm: jax.Array
    """float32 [L, dv]: plain gain of the output norm"""


@dataclass(frozen=True, kw_only=True)
class GdnSizes:
    """The widths that a state implies."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int

    @property
    def keys(self) -> int:
        """Width of all keys of a token."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Width of all values of a token."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution."""
        return 2 * self.keys + self.values

    @property
    def share(self) -> int:
        """Value heads that use the same key head."""
        return self.value_heads // self.key_heads


def zero_state(*, layers: int, slots: int, value_heads: int, key_dim: int, value_dim: int, channels: int) -> GdnState:
    """Fresh memory of `slots` slots."""
    return GdnState(
        recurrent=jnp.zeros((layers, slots, value_heads, key_dim, value_dim), jnp.float32),
        conv=jnp.zeros((layers, slots, CONV_TAPS, channels), jnp.float32),
    )


def sizes_of(state: GdnState) -> GdnSizes:
    """The widths of a state. Raises ValueError where its two arrays do not fit each other."""
    value_heads, key_dim, value_dim = state.recurrent.shape[2:]
    keys = state.conv.shape[-1] - value_heads * value_dim
    key_heads = keys // (2 * key_dim)
    if key_heads < 1 or keys != 2 * key_heads * key_dim or value_heads % key_heads:
        heads = f"heads of {key_dim} and {value_heads} values of {value_dim}"
        raise ValueError(f"{state.conv.shape[-1]} channels do not hold queries and keys in {heads}")
    return GdnSizes(key_heads=key_heads, value_heads=value_heads, key_dim=key_dim, value_dim=value_dim)
