"""Products with packed matrices in plain jnp: unpack to float32, multiply, epilogue. The meaning of the kernels.

Knows nothing of tiles, warps or tuning; works for every shape that packs. Invariant: the same functions, the same
arguments and the same shapes of results as the kernel's (`ahead` is the kernel's own: it changes no value).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from kernels_pallas.arrays import F16_MAX, Activation, Ahead, PackedMatrix
from kernels_pallas.packing import FORMATS, Array, group_scales, unsigned_codes

TILE = 16
"""Neighbours whose squares are summed together: the rows of one `mma` tile."""


def unpack_matrix(matrix: PackedMatrix, layer: jax.Array, dtype: DTypeLike = jnp.float32) -> jax.Array:
    """The numbers [N, K] of matrix `layer` (int32 [1]): code * group scale * row scale in float32, then in `dtype`."""
    form = FORMATS[matrix.format]
    named = {"codes": matrix.codes, "high": matrix.high, "scales": matrix.scales, "row_scales": matrix.row_scales}
    stored = {name: plane for name, plane in named.items() if plane is not None}
    planes = {name: lax.dynamic_index_in_dim(plane, layer[0], keepdims=False) for name, plane in stored.items()}
    # the unpacking is spelled with operators that both libraries have
    as_numpy = cast(Mapping[str, Array], planes)
    codes = cast(jax.Array, unsigned_codes(matrix.format, as_numpy, matrix.n, matrix.k))
    if matrix.format == "bf16":
        return lax.bitcast_convert_type(codes, jnp.bfloat16).astype(dtype)
    if matrix.format == "fp8_row":
        values = lax.bitcast_convert_type(codes.astype(jnp.uint8), jnp.float8_e4m3fn).astype(jnp.float32)
    elif matrix.format == "nvfp4":
        values = _e2m1(codes.astype(jnp.int32))
    else:
        values = (codes.astype(jnp.int32) - form.bias).astype(jnp.float32)
    if form.group is not None:
        bits = cast(jax.Array, group_scales(matrix.format, as_numpy, matrix.n, matrix.k))
        kind = jnp.float8_e4m3fn if form.group == 16 else jnp.float16
        scales = lax.bitcast_convert_type(bits, kind).astype(jnp.float32)
        values = (values.reshape(*scales.shape, form.group) * scales[..., None]).reshape(values.shape)
    if form.row_scaled:
        values = values * planes["row_scales"][:, None]
    return values.astype(dtype)


def _e2m1(code: jax.Array) -> jax.Array:
    """int32 codes 0..15 to 0, .5, 1, 1.5, 2, 3, 4, 6 and negatives, without a table."""
    magnitude = code & 7
    wide = jnp.where(magnitude < 6, magnitude - 2, 2 * magnitude - 8).astype(jnp.float32)
    value = jnp.where(magnitude < 4, magnitude.astype(jnp.float32) * 0.5, wide)
    return jnp.where(code < 8, value, -value)


def row_factors(x: Activation) -> jax.Array:
    """float32 [M]: what the output rows of a product with `x` are multiplied by."""
    rows, width = x.values.shape
    if x.squares is None:
        return jnp.full((rows,), 2.0**x.shift, jnp.float32)
    return lax.rsqrt(jnp.sum(x.squares, axis=1) / width + x.eps) * 2.0**x.shift


def _product(x: Activation, matrix: PackedMatrix, layer: jax.Array) -> jax.Array:
    weights = unpack_matrix(matrix, layer)
    y = jnp.matmul(x.values.astype(jnp.float32), weights.T, precision=lax.Precision.HIGHEST)
    return y * row_factors(x)[:, None]


def shifted(values: jax.Array, shift: int, dtype: DTypeLike) -> jax.Array:
    """values * 2**-shift in `dtype`, float16 clamped to its largest number."""
    values = values * 2.0**-shift
    if jnp.dtype(dtype) == jnp.float16:
        values = jnp.clip(values, -F16_MAX, F16_MAX)
    return values.astype(dtype)


def start(
    residual: jax.Array, gains: jax.Array, gain_index: jax.Array, *, out_dtype: DTypeLike, shift: int, eps: float
) -> Activation:
    """The normalised input of the first product. residual [M, N], gains [G, N] float32, gain_index int32 [1]."""
    gain = lax.dynamic_index_in_dim(gains, gain_index[0], keepdims=False)
    squares = jnp.sum(jnp.square(residual).reshape(residual.shape[0], -1, TILE), axis=2)
    return Activation(values=shifted(residual * gain, shift, out_dtype), squares=squares, shift=shift, eps=eps)


def project(
    x: Activation, matrix: PackedMatrix, layer: jax.Array, *, out_dtype: DTypeLike, ahead: tuple[Ahead, ...] = ()
) -> jax.Array:
    """[M, N] in `out_dtype`."""
    return _product(x, matrix, layer).astype(out_dtype)


def project_gated(
    x: Activation,
    matrix: PackedMatrix,
    layer: jax.Array,
    *,
    out_dtype: DTypeLike,
    shift: int,
    ahead: tuple[Ahead, ...] = (),
) -> Activation:
    """silu(first half) * second half, [M, N/2]."""
    gate, up = jnp.split(_product(x, matrix, layer), 2, axis=1)
    return Activation(values=shifted(gate * jax.nn.sigmoid(gate) * up, shift, out_dtype), shift=shift)


def project_residual(
    x: Activation,
    matrix: PackedMatrix,
    layer: jax.Array,
    residual: jax.Array,
    gains: jax.Array,
    gain_index: jax.Array,
    *,
    out_dtype: DTypeLike,
    shift: int,
    eps: float,
    ahead: tuple[Ahead, ...] = (),
) -> tuple[jax.Array, Activation]:
    """residual + product, and the next product's input."""
    residual = residual + _product(x, matrix, layer)
    return residual, start(residual, gains, gain_index, out_dtype=out_dtype, shift=shift, eps=eps)
