"""Random numbers as a function of a counter: Threefry-2x32 with 20 rounds.

No state and no stream: the number for (seed, position, purpose) is the same whatever was drawn before, in whatever
batch row. Whole integer arithmetic, so every device and every JAX version gives the same bits.
"""

import enum

import jax
import jax.numpy as jnp

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


class Purpose(enum.IntEnum):
    """What a number is for: draws for one position never share a counter."""

    TOKEN = 0
    """Choosing the token of a position."""


def threefry_2x32(
    key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Two uint32 words of uint32 key and counter words; all arrays broadcast together."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    left, right = counter[0] + schedule[0], counter[1] + schedule[1]
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            left = left + right
            right = (right << turn) | (right >> (32 - turn))
            right = right ^ left
        left = left + schedule[(group + 1) % 3]
        right = right + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return left, right


def uniform(seed_low: jax.Array, seed_high: jax.Array, position: jax.Array, purpose: Purpose) -> jax.Array:
    """float32 in [0, 1) with 24 random bits: uint32 seed words [R], int32 position [R] -> [R]."""
    counter = (position.astype(jnp.uint32), jnp.full(position.shape, int(purpose), jnp.uint32))
    word, _ = threefry_2x32((seed_low, seed_high), counter)
    number: jax.Array = (word >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)
    return number
