"""What happens to a float32 sum on its way out of the prefill matmul. Shared by the reference and the kernel.

Knows values, not tiles: everything here is elementwise. Invariant: nothing leaves as float16 infinity, since a clamped
value harms one channel and an infinite one the whole answer.
"""

from __future__ import annotations

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from kernels_pallas.arrays import F16_MAX

Epilogue = Literal["none", "residual_add", "silu_product"]
EPILOGUES: tuple[str, ...] = get_args(Epilogue)


def to_dtype(value: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Round float32 to `dtype`; float16 is clamped to its largest finite value."""
    if jnp.dtype(dtype) == jnp.float16:
        value = jnp.clip(value, -F16_MAX, F16_MAX)
    return value.astype(dtype)


def silu_product(gate: jax.Array, up: jax.Array, shift: int) -> jax.Array:
    """gate * sigmoid(gate) * up * 2**-shift, float32 of any one shape."""
    return gate / (1.0 + jnp.exp(-gate)) * (up * 2.0**-shift)
