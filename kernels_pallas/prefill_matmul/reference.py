"""Plain JAX meaning of the prefill matmul: what the kernel is judged by, and what runs where there is no GPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from .epilogue import Epilogue, silu_product, to_dtype


def matmul(
    x: jax.Array,
    w: jax.Array,
    *,
    epilogue: Epilogue,
    residual: jax.Array | None,
    out_dtype: DTypeLike,
    shift: int,
    row_scales: jax.Array | None = None,
) -> jax.Array:
    """y = x @ w.T summed in float32, then the epilogue. x [T, K], w [N, K] -> [T, N], or [T, N/2] for silu_product.

    none: y. residual_add: residual + y * 2**shift, residual float32 [T, N]. silu_product: w holds all gate rows, then
    all up rows; silu(y[:, :N/2]) * y[:, N/2:] * 2**-shift. Rounded to out_dtype, float16 clamped to finite.
    """
    sums = lax.dot_general(x, w, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    if row_scales is not None:
        sums = sums * row_scales
    if epilogue == "residual_add":
        assert residual is not None
        sums = residual + sums * 2.0**shift
    elif epilogue == "silu_product":
        half = w.shape[0] // 2
        sums = silu_product(sums[:, :half], sums[:, half:], shift)
    return to_dtype(sums, out_dtype)
