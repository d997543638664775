"""The inner products as PTX: unpack one chunk of weights in registers and multiply it with `mma.sync.m16n8k16`.

Text only: Triton applies a block to 4 neighbours of [warps, 128] tensors, which is one lane's 16 bytes of a chunk (see
packing.py for what lies in them). Weights are the left operand (16 rows), 8 rows of x the right one, float32 sums.

Tricks. Codes are read as float16 bits, everything is exact. e2m1 falls into the exponent field, bytes are subnormals: a
value is off by a power of two that `OUT_SCALE` undoes once at the end (the tensor core keeps subnormals). Two of four
e2m1 positions are reached by one `mul.lo`, which moves sign and magnitude at once. Four to six bits are put into the
mantissa of 1024, where one addition takes 1024 and the bias away; codes four bits up are 16 times their value there,
and the same operation as a multiplication and addition divides them. int8 costs no instruction for its bias: the same x
is multiplied with a constant -bias on the tensor core. (For four bits that was slower: half of the products were
constants, and two sums a group needed more registers.) NVFP4's scale times code is exact in float16.
"""

from __future__ import annotations

import numpy as np

from kernels_pallas.packing import FORMATS, HIGH_SHIFTS

OUT_SCALE = {
    "bf16": 1.0,
    "fp8_row": 1.0,
    "nvfp4": 2.0**14,
    "int8_g32": 2.0**24,
    "q4_g64": 1.0,
    "q5_g64": 1.0,
    "q6_g64": 1.0,
}
"""What the sums of a format are multiplied by at the end."""

FLOATS, WORDS = "f,f,f,f", "r,r,r,r"


def _regs(first: int, count: int = 4) -> list[str]:
    return [f"${i}" for i in range(first, first + count)]


OUT, ACC, W = _regs(0), _regs(4), _regs(8)


def _mma(d: list[str], a: list[str], b: list[str], c: list[str], kind: str = "f16") -> str:
    operands = ",".join("{" + ",".join(part) + "}" for part in (d, a, b, c))
    return f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {operands};"


def _scales(reg: str) -> list[str]:
    """float32 f0, f1: the float16 scales of rows r and r + 8."""
    return [f"mov.b32 {{h0,h1}}, {reg};", "cvt.f32.f16 f0, h0;", "cvt.f32.f16 f1, h1;"]


def _zero(name: str, count: int) -> list[str]:
    return [f"mov.f32 {name}{i}, 0f00000000;" for i in range(count)]


def _constant(value: int) -> str:
    """-value as a float16 subnormal, twice in a word."""
    return f"0x{(0x8000 | value) * 0x10001:08X}"


def _twice(value: float) -> str:
    """A float16, twice in a word."""
    return f"0x{int(np.float16(value).view(np.uint16)) * 0x10001:08X}"


def _bf16(j: int) -> tuple[str, str]:
    """acc, w, x (8 values, of which chunk j has a half)."""
    x = _regs(12)[2 * (j % 2) :][:2]
    return _mma(OUT, W, x, ACC, "bf16"), ",".join([FLOATS, WORDS, WORDS])


def _fp8() -> tuple[str, str]:
    """acc, w, x."""
    x = _regs(12)
    text = ["{ .reg .b16 h0,h1; .reg .b32 a<8>;"]
    for i, w in enumerate(W):
        text += [f"mov.b32 {{h0,h1}}, {w};"]
        text += [f"cvt.rn.f16x2.e4m3x2 a{2 * i}, h0;", f"cvt.rn.f16x2.e4m3x2 a{2 * i + 1}, h1;"]
    for m in (0, 1):
        a = [f"a{2 * m}", f"a{2 * m + 4}", f"a{2 * m + 1}", f"a{2 * m + 5}"]
        text.append(_mma(OUT, a, x[2 * m : 2 * m + 2], ACC if m == 0 else OUT))
    return "".join(text) + "}", ",".join([FLOATS, WORDS, WORDS])


def _int8(j: int) -> tuple[str, str]:
    """acc, w, x, scales of four chunks."""
    x, s = _regs(12), _regs(16)
    text = ["{ .reg .b16 h0,h1; .reg .f32 f0,f1; .reg .f32 d<4>; .reg .b32 z; .reg .b32 a<8>;"]
    text += [f"mov.b32 z, {_constant(128)};", *_scales(s[j]), *_zero("d", 4)]
    for i, w in enumerate(W):
        text += [f"and.b32 a{2 * i}, {w}, 0x00FF00FF;", f"prmt.b32 a{2 * i + 1}, {w}, 0, 0x4341;"]
    d = [f"d{i}" for i in range(4)]
    text += [_mma(d, ["z"] * 4, x[2 * m : 2 * m + 2], d) for m in (0, 1)]
    for m in (0, 1):
        a = [f"a{2 * m}", f"a{2 * m + 4}", f"a{2 * m + 1}", f"a{2 * m + 5}"]
        text.append(_mma(d, a, x[2 * m : 2 * m + 2], d))
    text += [f"fma.rn.f32 {OUT[i]}, d{i}, f{i // 2}, {ACC[i]};" for i in range(4)]
    return "".join(text) + "}", ",".join([FLOATS, WORDS, WORDS, WORDS])


def _quad(m: int) -> list[str]:
    """Left operand of product m of four: registers of pairs 2 m and 2 m + 1 in rows r and r + 8."""
    first = 4 * (m // 2) + 2 * (m % 2)
    return [f"a{first}", f"a{first + 8}", f"a{first + 1}", f"a{first + 9}"]


def _high_bits(bits: int, i: int, high: list[str]) -> list[str]:
    """Put the bits above the fourth of word i into its four pairs."""
    half, word = divmod(i, 2)
    mask = (1 << (bits - 4)) - 1
    text = []
    for t in (0, 1):
        shift = HIGH_SHIFTS[bits][2 * word + t if bits == 6 else 4 * half + 2 * word + t]
        unit = high[half if bits == 6 else 0]
        text.append(f"shr.b32 m, {unit}, {shift};" if shift > 0 else f"shl.b32 m, {unit}, {-shift};")
        for pair, at in ((t, 4), (2 + t, 8)):
            text.append(f"lop3.b32 a{4 * i + pair}, m, 0x{(mask << at) * 0x10001:08X}, a{4 * i + pair}, 0xEA;")
    return text


def _integers(bits: int, j: int) -> tuple[str, str]:
    """acc, w, x (first 8 of the run), x (second 8), [high,] scales of four chunks."""
    x, units = _regs(12, 8), {4: 0, 5: 1, 6: 2}[bits]
    high, s = _regs(20, units), _regs(20 + units)
    bias = 1 << (bits - 1)
    text = ["{ .reg .b16 h0,h1; .reg .f32 f0,f1; .reg .f32 d<4>; .reg .b32 m,k,n0,n1,s; .reg .b32 a<16>;"]
    text += [f"mov.b32 k, {_twice(1024)};", f"mov.b32 n0, {_twice(-1024 - bias)};"]
    text += [f"mov.b32 s, {_twice(1 / 16)};", f"mov.b32 n1, {_twice(-64 - bias)};"]
    text += [*_scales(s[j]), *_zero("d", 4)]
    for i, w in enumerate(W):
        a = [f"a{4 * i + pair}" for pair in range(4)]
        text += [f"lop3.b32 {a[0]}, {w}, 0x000F000F, k, 0xEA;", f"lop3.b32 {a[2]}, {w}, 0x00F000F0, k, 0xEA;"]
        text += [f"shr.u32 m, {w}, 8;"]
        text += [f"lop3.b32 {a[1]}, m, 0x000F000F, k, 0xEA;", f"lop3.b32 {a[3]}, m, 0x00F000F0, k, 0xEA;"]
        if bits > 4:
            text += _high_bits(bits, i, high)
        text += [f"add.rn.f16x2 {pair}, {pair}, n0;" for pair in a[:2]]
        text += [f"fma.rn.f16x2 {pair}, {pair}, s, n1;" for pair in a[2:]]
    d = [f"d{i}" for i in range(4)]
    text += [_mma(d, _quad(m), x[2 * m : 2 * m + 2], d) for m in range(4)]
    text += [f"fma.rn.f32 {OUT[i]}, d{i}, f{i // 2}, {ACC[i]};" for i in range(4)]
    constraints = [FLOATS, WORDS, WORDS, WORDS, *(["r", "r,r"][units - 1 : units] if units else []), WORDS]
    return "".join(text) + "}", ",".join(constraints)


def _nvfp4(j: int) -> tuple[str, str]:
    """acc, w, x (first 8 of the run), x (second 8), scales of four chunks (uint16: rows r and r + 8)."""
    x, s = _regs(12, 8), _regs(20, 2)
    text = ["{ .reg .b32 s0,s1,sv,m;", ".reg .b16 hs,h0,h1,p0,p1;", ".reg .b32 a<16>;"]
    text += [f"mov.b32 {{p0,p1}}, {s[j // 2]};", f"mov.b16 hs, p{j % 2};", "cvt.rn.f16x2.e4m3x2 sv, hs;"]
    text += ["mov.b32 {h0,h1}, sv;", "mov.b32 s0, {h0,h0};", "mov.b32 s1, {h1,h1};"]
    for i, w in enumerate(W):
        a = [f"a{4 * i + p}" for p in range(4)]
        text += [f"and.b32 {a[0]}, {w}, 0x8E008E00;", f"shl.b32 m, {w}, 3;", f"and.b32 {a[1]}, m, 0x8E008E00;"]
        text += [f"and.b32 m, {w}, 0x40384038;", "mul.lo.u32 m, m, 0x42;", f"and.b32 {a[2]}, m, 0x8E008E00;"]
        text += [f"and.b32 m, {w}, 0x20072007;", "mul.lo.u32 m, m, 0x204;", f"and.b32 {a[3]}, m, 0x8E008E00;"]
        text += [f"mul.rn.f16x2 {r}, {r}, s{i // 2};" for r in a]
    text += [_mma(OUT, _quad(m), x[2 * m : 2 * m + 2], ACC if m == 0 else OUT) for m in range(4)]
    return "".join(text) + "}", ",".join([FLOATS, WORDS, WORDS, WORDS, "r,r"])


def product(format: str, j: int) -> tuple[str, str]:
    """(text, constraints) of chunk j of a block: results $0-3, then acc, w, x, ... as the format's function says."""
    bits = FORMATS[format].bits
    if format == "bf16":
        text, constraints = _bf16(j)
    elif format == "fp8_row":
        text, constraints = _fp8()
    elif format == "int8_g32":
        text, constraints = _int8(j)
    elif format == "nvfp4":
        text, constraints = _nvfp4(j)
    else:
        text, constraints = _integers(bits, j)
    return text, "=f,=f,=f,=f," + constraints
