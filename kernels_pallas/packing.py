"""Packed planes: the order of a matrix's codes in memory, so that a warp's 16-byte loads are operands of its `mma`.

NumPy only, and no part of `quant_matmul`, so that a conversion, which packs, loads no JAX. `pack` and
`unpack` are inverse to each other; what codes mean as numbers is said here only as far as bits go (an integer code c is
stored as c + bias, never negative).

One 16-row tile and `CHUNK` weights of K are a chunk: 128 words of 32 bits, four neighbours a lane. Lane 4 r + c of a
warp holds rows r and r + 8, and of K the runs that it multiplies with 16-byte pieces of x read in natural order:
    4-bit codes  K = 64 j + 16 c + 0..15     words 0, 1 row r, words 2, 3 row r + 8
    8-bit codes  K = 32 j + 8 c + 0..7       the same
    bf16         K = 32 (j / 2) + 8 c + 4 (j % 2) + 0..3     words 0, 2 row r, words 1, 3 row r + 8: an operand as it is
J = 4 chunks are a block where K allows it, else 2 or 1 (K a multiple of 64): nothing is ever padded.
Within a word the order is the one that needs the fewest instructions (triton.py's asm undoes it).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]  # planes of many dtypes
Planes = Mapping[str, Array]


@attrs.frozen(kw_only=True)
class PackedFormat:
    """What the packing has to know of a format."""

    name: str
    bits: int
    """Bits of a code: 16, 8, 6, 5 or 4."""
    bias: int = 0
    """Integer codes are stored as code + bias."""
    group: int | None = None
    """Weights of a row that share a group scale."""
    scale_dtype: str | None = None
    """Of the natural group scales."""
    row_scaled: bool = False

    @property
    def chunk(self) -> int:
        """Weights of a row in 512 bytes of 16 rows."""
        return {16: 16, 8: 32}.get(self.bits, 64)

    @property
    def code_dtype(self) -> np.dtype[np.generic]:
        """Of the natural codes; bfloat16 values travel as their 16 bits."""
        if self.bits == 16:
            return np.dtype("<u2")
        return np.dtype("i1" if self.bias else "u1")


_ALL = (
    PackedFormat(name="bf16", bits=16),
    PackedFormat(name="fp8_row", bits=8, row_scaled=True),
    PackedFormat(name="int8_g32", bits=8, bias=128, group=32, scale_dtype="<f2"),
    PackedFormat(name="q4_g64", bits=4, bias=8, group=64, scale_dtype="<f2"),
    PackedFormat(name="q5_g64", bits=5, bias=16, group=64, scale_dtype="<f2"),
    PackedFormat(name="q6_g64", bits=6, bias=32, group=64, scale_dtype="<f2"),
    PackedFormat(name="nvfp4", bits=4, group=16, scale_dtype="u1", row_scaled=True),
)
FORMATS: Mapping[str, PackedFormat] = MappingProxyType({form.name: form for form in _ALL})
"""The formats that the kernels read, by name."""

NIBBLES = (0, 8, 4, 12)
"""Bit of pair p of four in each half of a word: pairs 0 and 1 (shifted) read as they are, 2 and 3 as 16 times that."""
E2M1_BITS = ((15, 9), (12, 6), (14, 3), (13, 0))
"""(sign, magnitude) bit of pair p in each half of an e2m1 word."""
HIGH_SHIFTS = {5: (-4, -3, -2, -1, 4, 5, 6, 7), 6: (-4, -2, 4, 6)}
"""Right shifts that bring high bits to bit 4 (pairs 0, 1) and bit 8 (pairs 2, 3), for both halves of a word at once."""


@attrs.frozen
class PlaneSpec:
    """Shape and dtype of one packed plane of one matrix."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]


def chunks_a_block(form: PackedFormat, k: int) -> int:
    """J: 4, or fewer where K is no multiple of four chunks."""
    return next(j for j in (4, 2, 1) if k % (j * form.chunk) == 0)


def _checked(format: str, n: int, k: int) -> tuple[PackedFormat, int, int, int]:
    if format not in FORMATS:
        raise ValueError(f"format {format!r} cannot be packed; there are: {', '.join(FORMATS)}")
    if n <= 0 or n % 16 or k <= 0 or k % 64:
        raise ValueError(f"a packed matrix has a multiple of 16 rows and of 64 columns, not {n} x {k}")
    form = FORMATS[format]
    j = chunks_a_block(form, k)
    return form, n // 16, k // (form.chunk * j), j


def plane_specs(format: str, n: int, k: int) -> dict[str, PlaneSpec]:
    """The packed planes of one matrix [n, k], by name: codes, and high, scales, row_scales where the format has them.

    Raises:
        ValueError: an unknown format, rows not a multiple of 16, columns not one of 64.
    """
    form, tiles, blocks, j = _checked(format, n, k)
    specs = {"codes": PlaneSpec((tiles, blocks, j, 128), np.dtype("<u4"))}
    if form.bits in HIGH_SHIFTS:
        specs["high"] = PlaneSpec((tiles, blocks, j, 128), np.dtype("u1" if form.bits == 5 else "<u2"))
    if form.group == 16:
        specs["scales"] = PlaneSpec((tiles, blocks, 32 * j), np.dtype("<u2"))
    elif form.group is not None:
        specs["scales"] = PlaneSpec((tiles, blocks, 8 * j), np.dtype("<u4"))
    if form.row_scaled:
        specs["row_scales"] = PlaneSpec((n,), np.dtype("<f4"))
    return specs


def natural_specs(format: str, n: int, k: int) -> dict[str, PlaneSpec]:
    """What `pack` takes: codes [n, k] (bf16: values or their bits), scales [n, k/group], row_scales [n]."""
    form, *_ = _checked(format, n, k)
    specs = {"codes": PlaneSpec((n, k), form.code_dtype)}
    if form.group is not None:
        specs["scales"] = PlaneSpec((n, k // form.group), np.dtype(form.scale_dtype))
    if form.row_scaled:
        specs["row_scales"] = PlaneSpec((n,), np.dtype("<f4"))
    return specs


def _same_bits(array: Array, dtype: DTypeLike) -> Array:
    """The array's items read as `dtype` of the same width (bfloat16 as uint16, float16 as uint16)."""
    return np.ascontiguousarray(array).view(dtype)


def pack(format: str, planes: Planes) -> dict[str, Array]:
    """Natural planes of a matrix to packed planes, see `natural_specs` and `plane_specs`.

    Raises:
        ValueError: a plane is missing or has another shape.
    """
    n, k = planes["codes"].shape
    form, tiles, blocks, j = _checked(format, n, k)
    for name, spec in natural_specs(format, n, k).items():
        if name not in planes or planes[name].shape != spec.shape:
            raise ValueError(f"{format} of {n} x {k} needs natural plane {name} of shape {list(spec.shape)}")
    packed: dict[str, Array] = {}
    if form.bits == 16:
        bits = _same_bits(planes["codes"], "<u2")
        lanes = bits.reshape(tiles, 2, 8, blocks, j // 2, 4, 2, 2, 2).transpose(0, 3, 4, 6, 2, 5, 7, 1, 8)
        packed["codes"] = np.ascontiguousarray(lanes).view("<u4").reshape(tiles, blocks, j, 128)
    else:
        unsigned = (planes["codes"].astype(np.int16) + form.bias).astype(np.uint32)
        lanes = unsigned.reshape(tiles, 2, 8, blocks, j, 4, form.chunk // 4).transpose(0, 3, 4, 2, 5, 1, 6)
        packed["codes"] = _PACK[format](lanes).reshape(tiles, blocks, j, 128)  # lanes: tile, block, j, r, c, half, run
        if form.bits in HIGH_SHIFTS:
            packed["high"] = _pack_high(lanes, form.bits).reshape(tiles, blocks, j, 128)
    if form.group == 16:
        pairs = planes["scales"].reshape(tiles, 2, 8, blocks, j, 4).transpose(0, 3, 2, 5, 4, 1)
        packed["scales"] = np.ascontiguousarray(pairs).view("<u2").reshape(tiles, blocks, 32 * j)
    elif form.group is not None:
        halves = _same_bits(planes["scales"].astype("<f2"), "<u2").reshape(tiles, 2, 8, blocks, j)
        packed["scales"] = (
            np.ascontiguousarray(halves.transpose(0, 3, 2, 4, 1)).view("<u4").reshape(tiles, blocks, 8 * j)
        )
    if form.row_scaled:
        packed["row_scales"] = planes["row_scales"].astype("<f4")
    return packed


def _pack_bytes(order: tuple[int, ...], lanes: Array) -> Array:
    return np.ascontiguousarray(lanes.reshape(*lanes.shape[:-1], 2, 4)[..., list(order)].astype(np.uint8)).view("<u4")


def _pack_nibbles(lanes: Array) -> Array:
    pairs = lanes.reshape(*lanes.shape[:-1], 2, 4, 2) & 15  # word, pair, half of the word
    shifts = np.add.outer(NIBBLES, (0, 16)).astype(np.uint32)
    words: Array = np.bitwise_or.reduce(pairs << shifts, axis=(-2, -1))
    return words


def _pack_e2m1(lanes: Array) -> Array:
    pairs = lanes.reshape(*lanes.shape[:-1], 2, 4, 2)
    sign = np.add.outer([s for s, _ in E2M1_BITS], (0, 16)).astype(np.uint32)
    magnitude = np.add.outer([m for _, m in E2M1_BITS], (0, 16)).astype(np.uint32)
    words: Array = np.bitwise_or.reduce((pairs >> 3) << sign | (pairs & 7) << magnitude, axis=(-2, -1))
    return words


def _high_bits(bits: int) -> Array:
    """uint32 [rows of a unit, word, pair, half]: the bit of each value's high bits in its 32-bit unit."""
    shifts = np.array(HIGH_SHIFTS[bits]).reshape(-1, 2, 2)  # row (5 bits: r, r + 8), word, first or second pair
    low_pairs, high_pairs = shifts + 4, shifts + 8
    at = np.concatenate([low_pairs, high_pairs], axis=-1)  # row, word, pair
    bits_at: Array = np.add.outer(at, (0, 16)).astype(np.uint32)
    return bits_at


def _pack_high(lanes: Array, bits: int) -> Array:
    pairs = (lanes >> 4).reshape(*lanes.shape[:-1], 2, 4, 2)  # half (row), word, pair, half of the word
    if bits == 5:  # one unit holds both rows
        units = np.bitwise_or.reduce(pairs << _high_bits(5), axis=(-4, -3, -2, -1))[..., None]
        return np.ascontiguousarray(units).astype("<u4").view("u1")
    units = np.bitwise_or.reduce(pairs << _high_bits(6)[0], axis=(-3, -2, -1))
    return np.ascontiguousarray(units).astype("<u4").view("<u2")


_PACK = {
    "fp8_row": lambda lanes: _pack_bytes((0, 1, 2, 3), lanes),
    "int8_g32": lambda lanes: _pack_bytes((0, 2, 1, 3), lanes),  # masks 0x00FF00FF and 0xFF00FF00 then give pairs
    "q4_g64": _pack_nibbles,
    "q5_g64": _pack_nibbles,
    "q6_g64": _pack_nibbles,
    "nvfp4": _pack_e2m1,
}


def unsigned_codes(format: str, planes: Planes, n: int, k: int) -> Array:
    """The stored codes [n, k] (code + bias; bf16: bits) of packed planes. Operators only: JAX arrays work as well."""
    form, tiles, blocks, j = _checked(format, n, k)
    if form.bits == 16:
        lanes = planes["codes"].view("<u2").reshape(tiles, blocks, j // 2, 2, 8, 4, 2, 2, 2)
        return lanes.transpose(0, 7, 4, 1, 2, 5, 3, 6, 8).reshape(n, k)
    words = planes["codes"].reshape(tiles, blocks, j, 8, 4, 2, 2)  # tile, block, j, r, c, half, word
    values: Array
    if form.bits == 8:
        order = (0, 16, 8, 24) if format == "int8_g32" else (0, 8, 16, 24)
        values = words[..., None] >> np.array(order, np.uint32) & np.uint32(255)
    elif format == "nvfp4":
        sign, magnitude = (np.add.outer([bits[i] for bits in E2M1_BITS], (0, 16)).astype(np.uint32) for i in (0, 1))
        spread = words[..., None, None]
        values = (spread >> sign & np.uint32(1)) << np.uint32(3) | spread >> magnitude & np.uint32(7)
    else:
        values = words[..., None, None] >> np.add.outer(NIBBLES, (0, 16)).astype(np.uint32) & np.uint32(15)
        if form.bits in HIGH_SHIFTS:
            rows = 1 if form.bits == 5 else 2
            units = planes["high"].reshape(tiles, blocks, j, 8, 4, rows, 128 // 32 // rows).view("<u4")
            high = units.reshape(tiles, blocks, j, 8, 4, rows, 1, 1, 1) >> _high_bits(form.bits)
            values = values | (high & np.uint32((1 << (form.bits - 4)) - 1)) << np.uint32(4)
    lanes = values.reshape(tiles, blocks, j, 8, 4, 2, form.chunk // 4)
    return lanes.transpose(0, 5, 3, 1, 2, 4, 6).reshape(n, k)


def group_scales(format: str, planes: Planes, n: int, k: int) -> Array:
    """The group scales' bits [n, k/group], uint8 or uint16. Operators only: JAX arrays work as well."""
    form, tiles, blocks, j = _checked(format, n, k)
    if form.group == 16:
        pairs = planes["scales"].view("u1").reshape(tiles, blocks, 8, 4, j, 2)
        return pairs.transpose(0, 5, 2, 1, 4, 3).reshape(n, k // 16)
    halves = planes["scales"].view("<u2").reshape(tiles, blocks, 8, j, 2)
    return halves.transpose(0, 4, 2, 1, 3).reshape(n, blocks * j)


def unpack(format: str, planes: Planes) -> dict[str, Array]:
    """Natural planes from packed planes: the inverse of `pack` (bf16 codes come back as uint16 bits)."""
    tiles, blocks, j, _ = planes["codes"].shape
    n, k = 16 * tiles, blocks * j * FORMATS[format].chunk
    form = FORMATS[format]
    codes = unsigned_codes(format, planes, n, k)
    if form.bias:
        codes = codes.astype(np.int16) - np.int16(form.bias)
    natural: dict[str, Array] = {"codes": codes.astype(form.code_dtype)}
    if form.group is not None:
        bits = np.ascontiguousarray(group_scales(format, planes, n, k))
        natural["scales"] = bits.view(np.dtype(form.scale_dtype))
    if form.row_scaled:
        natural["row_scales"] = planes["row_scales"]
    return natural
