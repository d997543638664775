"""Codes of keys and values inside Pallas-Triton kernels: encode one row, widen a tile of codes for the tensor cores.

The same numbers as `formats.encode` and `formats.decode`; `exact` takes the plain form (interpret mode has no inline
PTX). Widening is what bounds a decode step over 8-bit pages (instructions, not bytes), so it is written in PTX: int8
code c becomes the float16 1024 + 128 + c by placing its byte, sign flipped, into a mantissa, and 1152 is subtracted;
four e4m3 codes are two conversion instructions. All of it is exact.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.pallas import triton as plt
from jax.typing import DTypeLike

from kernels_pallas.kv_cache.formats import StorageFormat

INT8_TO_F16 = (
    "{ .reg .b32 u, lo, hi, zero; mov.b32 zero, 0x64806480; xor.b32 u, $2, 0x80808080;"
    " prmt.b32 lo, u, 0x64646464, 0x5140; prmt.b32 hi, u, 0x64646464, 0x5342;"
    " sub.rn.f16x2 $0, lo, zero; sub.rn.f16x2 $1, hi, zero; }"
)
"""Four int8 in one register -> four float16 in two."""

E4M3_TO_F16 = "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $2; cvt.rn.f16x2.e4m3x2 $0, lo; cvt.rn.f16x2.e4m3x2 $1, hi; }"
"""Four e4m3 in one register -> four float16 in two."""

_POWER = "ex2.approx.ftz.f32 $0, $1;"
_DIVIDE = "div.rn.f32 $0, $1, $2;"
_ROUND_TO_INTEGER = 12582912.0
"""1.5 * 2**23: a float32 up to 2**22 plus this has no bits for a fraction, and was rounded to even."""


def operand_dtype(fmt: StorageFormat) -> DTypeLike:
    """What the tensor cores multiply: float16 for 8-bit codes, which it holds exactly, else the stored type."""
    operand: DTypeLike = jnp.float16 if fmt.scaled else fmt.dtype
    return operand


def widen(codes: jax.Array, fmt: StorageFormat, *, exact: bool) -> jax.Array:
    """A tile of codes as the operand of a product; scales are the caller's."""
    if not fmt.scaled:
        return codes
    if exact:
        return codes.astype(jnp.float16)
    program = INT8_TO_F16 if fmt.name == "int8" else E4M3_TO_F16
    [wide] = plt.elementwise_inline_asm(
        program,
        args=[codes],
        constraints="=r,=r,r",
        pack=4,
        result_shape_dtypes=[jax.ShapeDtypeStruct(codes.shape, jnp.float16)],
    )
    return wide


def encode_rows(rows: jax.Array, fmt: StorageFormat, *, exact: bool) -> tuple[jax.Array, jax.Array | None]:
    """rows float32 [n, d] -> codes [n, d] and scales float32 [n] (None without scales), always finite."""
    rows = jnp.where(rows == rows, jnp.clip(rows, -3.4028234663852886e38, 3.4028234663852886e38), 0.0)
    if not fmt.scaled:
        return jnp.clip(rows, -fmt.largest, fmt.largest).astype(fmt.dtype), None
    greatest = jnp.max(jnp.abs(rows), axis=1)
    seen = greatest > 1e-30
    inverse = _divide(jnp.full(greatest.shape, fmt.largest, jnp.float32), jnp.where(seen, greatest, 1.0), exact)
    scaled = jnp.clip(rows * jnp.where(seen, inverse, 0.0)[:, None], -fmt.largest, fmt.largest)
    scales = jnp.where(seen, greatest * (1.0 / fmt.largest), 0.0)
    if fmt.name == "int8":
        # XLA would simplify the sum away, Triton does not; Triton has no rounding.
        whole = jnp.round(scaled) if exact else (scaled + _ROUND_TO_INTEGER) - _ROUND_TO_INTEGER
        return whole.astype(jnp.int32).astype(jnp.int8), scales
    return scaled.astype(fmt.dtype), scales


def power_of_two(x: jax.Array, *, exact: bool) -> jax.Array:
    """2 ** x, zero where it would be a subnormal: one instruction; `jnp.exp2` cares for subnormals in four."""
    if exact:
        return jnp.exp2(x)
    [power] = plt.elementwise_inline_asm(
        _POWER,
        args=[x],
        constraints="=f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(x.shape, jnp.float32)],
    )
    return power


def _divide(numerator: jax.Array, denominator: jax.Array, exact: bool) -> jax.Array:
    """Rounded once, which Triton's division is not."""
    if exact:
        return numerator / denominator
    [quotient] = plt.elementwise_inline_asm(
        _DIVIDE,
        args=[numerator, denominator],
        constraints="=f,f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(numerator.shape, jnp.float32)],
    )
    return quotient
