"""What the model remembers between calls: pools of pages for attention, slots for the delta net.

Arrays only; who owns which page or slot is the ledger's business. One array per layer and kind, float32.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ninfer.engine.model.config import CONV_TAPS, TextConfig
from ninfer.engine.types import PAGE_TOKENS


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class TextState:
    """The trunk's memory. Tuples have one array per layer of their kind, in layer order."""

    keys: tuple[jax.Array, ...]
    """[pages, 64, kv, d], normed and rotated"""
    values: tuple[jax.Array, ...]
    """[pages, 64, kv, d]"""
    recurrent: tuple[jax.Array, ...]
    """[slots, Hv, dk, dv]"""
    conv: tuple[jax.Array, ...]
    """[slots, C, 3]: the last three inputs of the convolution, the newest last"""


def zero_state(config: TextConfig, *, pages: int, slots: int) -> TextState:
    """Fresh memory of `pages` pages and `slots` slots, float32."""

    def each(count: int, *shape: int) -> tuple[jax.Array, ...]:
        return tuple(jnp.zeros(shape, jnp.float32) for _ in range(count))

    pool = (pages, PAGE_TOKENS, config.num_key_value_heads, config.head_dim)
    matrix = (slots, config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim)
    return TextState(
        keys=each(config.full_layers, *pool),
        values=each(config.full_layers, *pool),
        recurrent=each(config.linear_layers, *matrix),
        conv=each(config.linear_layers, slots, config.conv_channels, CONV_TAPS - 1),
    )
