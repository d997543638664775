"""A packed matrix as a plain [N, K] array: the scratch operand of the prefill matmul, at about copy speed.

One program turns one block of 16 rows from the order of a warp's lanes into natural rows. The layout is that of
kernels_pallas/packing.py, read here from its text and held by a test against `pack`. Arithmetic is plain jnp: a code
costs under ten instructions, and the two bytes written for it leave time for about twenty.

Invariant: a value is code * scale rounded once to the result's type where that product is exact in float32, as it is
for every format without a row scale; a row scale is one more float32 product.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt
from jax.typing import DTypeLike

from kernels_pallas.arrays import CHUNK, PackedMatrix

_Ref: TypeAlias = Any  # a place in global memory as Pallas hands it to a body; its type has no public name

TILE_ROWS = 16
NUM_WARPS = 4
MAGIC = 0x4B000000  # bits of 2**23: an integer below 2**23 in the mantissa, so the conversion is one subtraction
BIAS = {"int8_g32": 128, "q4_g64": 8, "q5_g64": 16, "q6_g64": 32}
E2M1_SIGNS = 0xDECF  # where pair 0, 1, 2, 3 has its sign bit, a nibble each from the lowest


def dequantise(matrix: PackedMatrix, layer: jax.Array, dtype: DTypeLike, *, interpret: bool = False) -> jax.Array:
    """Layer `layer` (int32 [1]) of a stack as [N, K] of float16 or bfloat16."""
    planes = [p for p in (matrix.codes, matrix.high, matrix.scales, matrix.row_scales) if p is not None]
    n, k = matrix.n, matrix.k
    depth = matrix.codes.shape[3] * CHUNK[matrix.format]
    out: jax.Array = pl.pallas_call(
        functools.partial(_body, matrix_format=matrix.format),
        grid=(n // TILE_ROWS, k // depth),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * (1 + len(planes)),
        out_specs=pl.BlockSpec((TILE_ROWS, depth), lambda tile, block: (tile, block)),
        out_shape=jax.ShapeDtypeStruct((n, k), dtype),
        compiler_params=plt.CompilerParams(num_warps=NUM_WARPS, num_stages=1),
        interpret=interpret,
        name=f"dequantise_{matrix.format}",
    )(layer, *planes)
    return out


def _body(layer_ref: _Ref, codes_ref: _Ref, *refs: _Ref, matrix_format: str) -> None:
    *plane_refs, out_ref = refs
    at = (layer_ref[0], pl.program_id(0), pl.program_id(1))
    chunks = codes_ref.shape[3]
    each = {"bf16": 2, "fp8_row": 4, "int8_g32": 4}.get(matrix_format, 8)  # values of a word
    words = out_ref.shape[1] // each
    row = lax.broadcasted_iota(jnp.int32, (TILE_ROWS, words, 1), 0)
    word = lax.broadcasted_iota(jnp.int32, (TILE_ROWS, words, 1), 1)
    value = lax.broadcasted_iota(jnp.int32, (TILE_ROWS, words, each), 2)
    half, r = row >> 3, row & 7
    if matrix_format == "bf16":
        j, c, first = 2 * (word >> 4) + ((word >> 1) & 1), (word >> 2) & 3, 2 * (word & 1) + half
    else:
        j, c, first = word >> 3, (word >> 1) & 3, 2 * half + (word & 1)
    lane = 4 * r + c
    codes = codes_ref[(*at, j, 4 * lane + first)]
    if matrix_format in ("q5_g64", "q6_g64"):
        high = _high(plane_refs.pop(0), at, j, lane, half, word & 1, value, 5 if matrix_format == "q5_g64" else 6)
        numbers = _integer(_field(codes, _nibble(value), 15) | high << 4, matrix_format)
    elif matrix_format == "bf16":
        numbers = lax.bitcast_convert_type(_field(codes, 16 * value, 0xFFFF) << 16, jnp.float32)
    elif matrix_format == "fp8_row":
        bits = _field(codes, 8 * value, 0xFF)
        numbers = _half_bits((bits & 0x80) << 8 | (bits & 0x7F) << 7) * 2.0**8
    elif matrix_format == "int8_g32":  # bytes lie as 0, 2, 1, 3
        numbers = _integer(_field(codes, 8 * ((value & 1) * 2 | value >> 1), 0xFF), matrix_format)
    elif matrix_format == "nvfp4":
        pair, upper = value >> 1, 16 * (value & 1)
        sign = _field(codes, (E2M1_SIGNS >> (4 * pair) & 15) + upper, 1)
        numbers = _half_bits(sign << 15 | _field(codes, 9 - 3 * pair + upper, 7) << 9) * 2.0**14
    else:
        numbers = _integer(_field(codes, _nibble(value), 15), matrix_format)
    if matrix_format == "nvfp4":
        both = plane_refs.pop(0)[(*at, lane * chunks + j)].astype(jnp.uint32)
        bits = both >> (8 * half).astype(jnp.uint32)
        numbers = numbers * (_half_bits((bits & 0x80) << 8 | (bits & 0x7F) << 7) * 2.0**8)
    elif matrix_format in BIAS:
        both = plane_refs.pop(0)[(*at, r * chunks + j)]
        numbers = numbers * _half_bits(both >> (16 * half).astype(jnp.uint32))
    if plane_refs:
        numbers = numbers * plane_refs[0][at[0], TILE_ROWS * at[1] + row]
    out_ref[...] = numbers.astype(out_ref.dtype).reshape(out_ref.shape)


def _field(words: jax.Array, shift: jax.Array, mask: int) -> jax.Array:
    """The bits of every value: uint32 of the values' shape."""
    bits: jax.Array = (words >> shift.astype(jnp.uint32)) & jnp.uint32(mask)
    return bits


def _nibble(value: jax.Array) -> jax.Array:
    """Bit of value 2 p + h of a word of nibbles: 0, 8, 4, 12 for the four pairs, 16 more for the second of a pair."""
    return ((value >> 1) & 1) * 8 + (value >> 2) * 4 + (value & 1) * 16


def _integer(codes: jax.Array, matrix_format: str) -> jax.Array:
    """Biased codes as float32 integers."""
    biased: jax.Array = lax.bitcast_convert_type(codes | jnp.uint32(MAGIC), jnp.float32)
    number: jax.Array = biased - jnp.float32(2.0**23 + BIAS[matrix_format])
    return number


def _half_bits(bits: jax.Array) -> jax.Array:
    """The low 16 bits read as float16, as float32: exact, subnormals included."""
    halves: jax.Array = lax.bitcast_convert_type(bits.astype(jnp.uint16), jnp.float16)
    return halves.astype(jnp.float32)


def _high(
    ref: _Ref,
    at: tuple[Any, Any, Any],
    j: jax.Array,
    lane: jax.Array,
    half: jax.Array,
    word: jax.Array,
    value: jax.Array,
    bits: int,
) -> jax.Array:
    """The bits above the fourth of every value, uint32."""
    first, second, upper = (value >> 1) & 1, value >> 2, value & 1
    if bits == 5:  # a lane's 32 bits, as four bytes, hold one bit of each of its values of both rows
        place = 8 * half + 2 * word + first + 4 * second + 16 * upper
        units = ref[(*at, jnp.broadcast_to(j, value.shape), 4 * lane + (place >> 3))].astype(jnp.uint32)
        return _field(units, place & 7, 1)
    place = 8 * word + 2 * first + 4 * second  # a row's 32 bits, as two halves, hold two bits of each of its values
    units = ref[(*at, jnp.broadcast_to(j, value.shape), 4 * lane + 2 * half + upper)].astype(jnp.uint32)
    return _field(units, place, 3)
