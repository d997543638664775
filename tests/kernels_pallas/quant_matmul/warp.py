"""A warp that runs the PTX of quant_matmul/ptx.py: 32 lanes, the dozen instructions that it uses, `mma` included."""

import re
from collections.abc import Sequence

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.generic]


class Warp:
    """Registers are arrays over 32 lanes: uint32, or float32 where an instruction writes a float."""

    def __init__(self, operands: Sequence[Lanes]) -> None:
        self.registers: dict[str, Lanes] = {f"${i + 4}": lanes for i, lanes in enumerate(operands)}

    def run(self, text: str) -> list[Lanes]:
        """Run a block and give the four results."""
        for line in text.strip("{}").replace("\n", " ").split(";"):
            line = line.strip().lstrip("{").strip()
            if line and not line.startswith(".reg"):
                name, _, rest = line.partition(" ")
                self._step(name, re.findall(r"\{[^}]*\}|[^,\s]+", rest))
        return [self.registers[f"${i}"].view(np.float32) for i in range(4)]

    def _get(self, name: str) -> Lanes:
        if name.startswith("{"):
            low, high = (self._get(part).astype(np.uint32) for part in name.strip("{}").split(","))
            return low | high << 16
        if name.startswith("0f"):
            return np.full(32, int(name[2:], 16), np.uint32)
        if re.match(r"^(0x|\d)", name):
            return np.full(32, int(name, 0), np.uint32)
        return self.registers[name]

    def _set(self, name: str, value: Lanes) -> None:
        if name.startswith("{"):
            low, high = name.strip("{}").split(",")
            self.registers[low], self.registers[high] = value & 0xFFFF, value >> 16
        else:
            self.registers[name] = value

    def _step(self, name: str, args: list[str]) -> None:
        if name.startswith("mma"):
            self._mma(args, np.dtype(ml_dtypes.bfloat16 if "bf16" in name else np.float16))
            return
        target, *sources = args
        values = [self._get(source) for source in sources]
        self._set(target, OPERATIONS[name](*values))

    def _mma(self, args: list[str], kind: "np.dtype[np.generic]") -> None:
        d, a, b, c = ([part.strip() for part in arg.strip("{}").split(",")] for arg in args)
        row, column = np.arange(32) // 4, np.arange(32) % 4
        left, right, total = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8), np.float32)
        for i, name in enumerate(a):
            pair = self._get(name).astype("<u4").view(kind).reshape(32, 2).astype(np.float64)
            for half in (0, 1):
                left[row + 8 * (i % 2), 2 * column + half + 8 * (i // 2)] = pair[:, half]
        for i, name in enumerate(b):
            pair = self._get(name).astype("<u4").view(kind).reshape(32, 2).astype(np.float64)
            for half in (0, 1):
                right[2 * column + half + 8 * i, row] = pair[:, half]
        at = [(row + 8 * (i // 2), 2 * column + i % 2) for i in range(4)]
        for place, name in zip(at, c, strict=True):
            total[place] = self._get(name).view(np.float32)
        result = (total + left @ right).astype(np.float32)
        for place, name in zip(at, d, strict=True):
            self._set(name, result[place].view(np.uint32))


def _e4m3_pair(bits: Lanes) -> Lanes:
    pair = bits.astype("<u2").view(ml_dtypes.float8_e4m3fn).astype(np.float16)
    return pair.view("<u4")


def _times_f16x2(left: Lanes, right: Lanes) -> Lanes:
    pairs = [each.astype("<u4").view(np.float16) for each in (left, right)]
    return (pairs[0] * pairs[1]).view("<u4")


def _plus_f16x2(left: Lanes, right: Lanes) -> Lanes:
    pairs = [each.astype("<u4").view(np.float16) for each in (left, right)]
    return (pairs[0] + pairs[1]).view("<u4")


def _fused_f16x2(left: Lanes, right: Lanes, more: Lanes) -> Lanes:
    a, b, c = (each.astype("<u4").view(np.float16).astype(np.float64) for each in (left, right, more))
    return (a * b + c).astype(np.float16).view("<u4")


def _permute(a: Lanes, b: Lanes, selector: Lanes) -> Lanes:
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    picks = [int(selector[0]) >> 4 * i & 7 for i in range(4)]
    result = [(both >> np.uint64(8 * pick) & np.uint64(255)) << np.uint64(8 * i) for i, pick in enumerate(picks)]
    return sum(result).astype(np.uint32)


def _fused(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    left, right, more = (each.view(np.float32).astype(np.float64) for each in (a, b, c))
    return (left * right + more).astype(np.float32).view(np.uint32)


OPERATIONS = {
    "mov.b32": lambda a: a,
    "mov.b16": lambda a: a,
    "mov.f32": lambda a: a,
    "and.b32": lambda a, b: a & b,
    "shl.b32": lambda a, b: a << b,
    "shr.b32": lambda a, b: a >> b,
    "shr.u32": lambda a, b: a >> b,
    "mul.lo.u32": lambda a, b: (a.astype(np.uint64) * b & 0xFFFFFFFF).astype(np.uint32),
    "lop3.b32": lambda a, b, c, table: a & b | c,
    "prmt.b32": _permute,
    "cvt.f32.f16": lambda a: a.astype("<u2").view(np.float16).astype(np.float32).view(np.uint32),
    "cvt.rn.f16x2.e4m3x2": _e4m3_pair,
    "mul.rn.f16x2": _times_f16x2,
    "add.rn.f16x2": _plus_f16x2,
    "fma.rn.f16x2": _fused_f16x2,
    "fma.rn.f32": lambda a, b, c: (
        (a.view(np.float32).astype(np.float64) * b.view(np.float32) + c.view(np.float32))
        .astype(np.float32)
        .view(np.uint32)
    ),
}
