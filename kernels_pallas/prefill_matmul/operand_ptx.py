"""Packed weights to the left operand of a wgmma: PTX for one thread and 64 of K, by format. Text only, no JAX.

A warpgroup's operand is 64 rows by 64 of K. Its warp w holds tile w of four packed 16-row tiles; lane 4 r + c of it
must have, for each of four instructions i, K = 16 i + 2 c + {0, 1} and 16 i + 8 + 2 c + {0, 1} of rows r and r + 8, as
pairs of 16 bits. The packing (kernels_pallas/packing.py) has lane 4 r + i hold what instruction i needs (8-bit and
16-bit formats: lanes 4 r + 2 i and 2 i + 1), so a thread reads the words of its neighbours: K stays in natural order,
and sums have the bits that the unpacked matrix would give.

Inputs of the text, all but c addresses in shared memory: $16 the tile's codes, lane 4 r; $17 c; $18 its high bits, lane
4 r; $19 its scales, row r. Outputs: $0 to $15, register 4 i + 2 h8 + hr with h8 the upper eight of K and hr the upper
eight rows.
Invariant: values are those of `dequantise` of the matrix without its row scales, by `SUM_SCALE`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

MAGIC_F16 = 0x6400  # float16 1024: an integer below 1024 in its mantissa
BIAS = {"int8_g32": 128, "q4_g64": 8, "q5_g64": 16, "q6_g64": 32}
DEPTH = 64
"""K of one operand."""
SUM_SCALE = {"nvfp4": 2.0**7}
"""What the sums of a format are multiplied by, beside a row's scale: its weights come out smaller by that."""
LIFT_F16 = 0x5800  # float16 2**7
UNPACK_CLOCKS = {
    "bf16": 60,
    "fp8_row": 130,
    "int8_g32": 190,
    "q4_g64": 190,
    "q5_g64": 270,
    "q6_g64": 270,
    "nvfp4": 260,
}
"""About what a quarter of a multiprocessor needs for the text: its instructions, some of which take two clocks."""
OUTPUTS = 16
CHUNK_BYTES = 512


def supported(matrix_format: str) -> bool:
    """Whether there is a text for the format."""
    return matrix_format in _TEXTS


def operand_text(matrix_format: str, unit: int, chunks: int) -> str:
    """PTX for the 64 of K that begin at 64 * `unit` of a block of `chunks` chunks."""
    lines = ["{", ".reg .b32 w<4>, sr<2>, shift, shift2, field, number, code, off, magic, hi, lo, both;"]
    lines.append(".reg .b16 b0;")
    lines.extend(_TEXTS[matrix_format](matrix_format, unit, chunks))
    lines.append("}")
    return "\n".join(lines)


def _out(i: int, upper_k: int, upper_row: int) -> str:
    return f"${4 * i + 2 * upper_k + upper_row}"


def _group_scales(address: int, chunk: int) -> Iterator[str]:
    """sr0 and sr1: the float16 group scale of rows r and r + 8, twice each."""
    yield f"ld.shared.b32 both, [$19+{address + 4 * chunk}];"
    yield "prmt.b32 sr0, both, both, 0x1010;"
    yield "prmt.b32 sr1, both, both, 0x3232;"


def _scaled(out: str, row: int) -> str:
    """Biased codes on top of the magic number, one a half of `number`, to numbers."""
    return f"sub.rn.f16x2 number, number, off; mul.rn.f16x2 {out}, number, sr{row};"


def _constants(matrix_format: str) -> str:
    """Both in registers: an instruction takes one literal at most, and it is the mask that `_masked` gives it."""
    return f"mov.b32 off, {(MAGIC_F16 + BIAS[matrix_format]) * 0x10001:#x}; mov.b32 magic, {MAGIC_F16 * 0x10001:#x};"


def _masked(source: str, mask: int, under: str) -> str:
    """number = source & mask | under, in one instruction."""
    return f"lop3.b32 number, {source}, {mask:#x}, {under}, 0xEA;"


def _nibbles(matrix_format: str, unit: int, chunks: int) -> Iterator[str]:
    """Four, five and six bits. `shift` is the place of pair c: 0, 8, 4, 12."""
    bits = {"q4_g64": 4, "q5_g64": 5, "q6_g64": 6}[matrix_format]
    yield _constants(matrix_format)
    yield from _group_scales(0, unit)
    yield "and.b32 field, $17, 1; shl.b32 shift, field, 3; shr.b32 code, $17, 1; shl.b32 lo, code, 2;"
    yield "add.u32 shift, shift, lo;"
    if bits > 4:  # the place of pair c in a unit of high bits
        yield f"shl.b32 shift2, field, {bits - 5}; add.u32 shift2, shift2, lo;"
    for i in range(4):
        yield f"ld.shared.v4.b32 {{w0, w1, w2, w3}}, [$16+{CHUNK_BYTES * unit + 16 * i}];"
        for row in range(2):
            if bits == 6 or (bits == 5 and row == 0):
                bytes_a_lane = 4 * (bits - 4)
                yield f"ld.shared.b32 hi, [$18+{32 * bytes_a_lane * unit + bytes_a_lane * i + 4 * row * (bits - 5)}];"
            for upper in range(2):
                yield f"shr.b32 code, w{2 * row + upper}, shift; {_masked('code', 0x000F000F, 'magic')}"
                if bits > 4:  # turned so that the high bits come to lie above the four
                    place = 8 * upper if bits == 6 else 8 * row + 2 * upper
                    yield f"add.u32 field, shift2, {(place - 4) & 31}; shf.r.wrap.b32 field, hi, hi, field;"
                    yield _masked("field", ((1 << (bits - 4)) - 1 << 4) * 0x10001, "number")
                yield _scaled(_out(i, upper, row), row)


def _byte_words(unit: int) -> Iterator[tuple[int, int, int, str]]:
    """The words of 8-bit codes: (instruction, upper K, upper row, address); `lo` has c / 2 words added already."""
    for i in range(4):
        for upper in range(2):
            for row in range(2):
                at = CHUNK_BYTES * (2 * unit + i // 2) + 16 * (2 * (i % 2) + upper) + 8 * row
                yield i, upper, row, f"[lo+{at}]"


def _bytes(matrix_format: str, unit: int, chunks: int) -> Iterator[str]:
    """Eight-bit integers: bytes lie as 0, 2, 1, 3, so a shift by none or eight brings a pair to its halves."""
    yield _constants(matrix_format)
    yield "shr.b32 lo, $17, 1; shl.b32 lo, lo, 2; add.u32 lo, lo, $16; and.b32 shift, $17, 1; shl.b32 shift, shift, 3;"
    for i, upper, row, at in _byte_words(unit):
        if (i % 2, upper, row) == (0, 0, 0):
            yield from _group_scales(0, 2 * unit + i // 2)
        yield f"ld.shared.b32 w0, {at}; shr.b32 code, w0, shift; {_masked('code', 0x00FF00FF, 'magic')}"
        yield _scaled(_out(i, upper, row), row)


def _float8(matrix_format: str, unit: int, chunks: int) -> Iterator[str]:
    """e4m3 as it is; the row scale multiplies the sum."""
    yield "shr.b32 lo, $17, 1; shl.b32 lo, lo, 2; add.u32 lo, lo, $16; and.b32 shift, $17, 1; shl.b32 shift, shift, 4;"
    for i, upper, row, at in _byte_words(unit):
        yield f"ld.shared.b32 w0, {at}; shr.b32 code, w0, shift; cvt.u16.u32 b0, code;"
        yield f"cvt.rn.f16x2.e4m3x2 {_out(i, upper, row)}, b0;"


def _e2m1(matrix_format: str, unit: int, chunks: int) -> Iterator[str]:
    """e2m1 in the exponent field of float16 is the value times 2**-14; a scale can grow by 2**7: exact products."""
    yield "mul.lo.u32 shift, $17, 3;"  # magnitudes of pair c end at bit 9 - 3 c of a half
    yield "shl.b32 shift2, $17, 2; mov.b32 lo, 0x2130; shr.b32 shift2, lo, shift2; and.b32 shift2, shift2, 15;"
    yield f"mov.b32 off, {LIFT_F16 * 0x10001:#x};"
    for i in range(4):
        yield f"ld.shared.v4.b32 {{w0, w1, w2, w3}}, [$16+{CHUNK_BYTES * unit + 16 * i}];"
        yield f"ld.shared.u16 b0, [$19+{2 * (chunks * i + unit)}];"
        yield "cvt.rn.f16x2.e4m3x2 both, b0; mul.rn.f16x2 both, both, off;"
        yield "prmt.b32 sr0, both, both, 0x1010; prmt.b32 sr1, both, both, 0x3232;"
        for row in range(2):
            for upper in range(2):
                word = f"w{2 * row + upper}"
                yield f"shl.b32 code, {word}, shift; and.b32 code, code, 0x0E000E00;"
                yield f"shl.b32 field, {word}, shift2; {_masked('field', 0x80008000, 'code')}"
                yield f"mul.rn.f16x2 {_out(i, upper, row)}, number, sr{row};"


def _plain(matrix_format: str, unit: int, chunks: int) -> Iterator[str]:
    """bfloat16 values: a word is a pair."""
    yield "shr.b32 lo, $17, 1; shl.b32 lo, lo, 9; add.u32 lo, lo, $16;"
    yield "and.b32 code, $17, 1; shl.b32 code, code, 3; add.u32 lo, lo, code;"
    for i in range(4):
        for upper in range(2):
            for row in range(2):
                at = CHUNK_BYTES * (4 * unit + 2 * (i // 2)) + 16 * (2 * (i % 2) + upper) + 4 * row
                yield f"ld.shared.b32 {_out(i, upper, row)}, [lo+{at}];"


_TEXTS: dict[str, Callable[[str, int, int], Iterator[str]]] = {
    "bf16": _plain,
    "fp8_row": _float8,
    "int8_g32": _bytes,
    "q4_g64": _nibbles,
    "q5_g64": _nibbles,
    "q6_g64": _nibbles,
    "nvfp4": _e2m1,
}
