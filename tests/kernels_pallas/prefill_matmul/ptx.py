"""What a few PTX instructions do, for one warp after the other: 32 lanes at once, NumPy arrays as registers.

Only what operand_ptx.py writes. An instruction that is not known here is an error, so a text cannot pass untested.
"""

import re
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.uint32]

_ADDRESS = re.compile(r"\[([$\w]+)(?:\+(\d+))?\]")


def run(text: str, memory: NDArray[np.uint8], inputs: Sequence[Lanes], outputs: int) -> list[Lanes]:
    """The registers $0 to $outputs - 1 after `text`; $outputs and on are `inputs`. `memory` is the shared memory."""
    registers = {f"${outputs + at}": lanes.astype(np.uint32) for at, lanes in enumerate(inputs)}
    for line in text.strip().strip("{}").split(";"):
        if (line := line.strip()) and not line.startswith(".reg"):
            name, _, rest = line.partition(" ")
            _step(name, [part.strip() for part in re.split(r",(?![^{]*})", rest)], registers, memory)
    return [registers[f"${at}"] for at in range(outputs)]


def _halves(lanes: Lanes) -> NDArray[np.float16]:
    return np.ascontiguousarray(lanes).view(np.float16).reshape(*lanes.shape, 2)


def _words(halves: NDArray[np.float16]) -> Lanes:
    return np.ascontiguousarray(halves).view(np.uint32).reshape(halves.shape[:-1])


def _float(lanes: Lanes) -> NDArray[np.float32]:
    return np.ascontiguousarray(lanes).view(np.float32)


def _bits(values: NDArray[np.float32]) -> Lanes:
    return np.ascontiguousarray(values.astype(np.float32)).view(np.uint32)


def _e4m3x2(lanes: Lanes) -> Lanes:
    pair = np.stack([lanes & 0xFF, lanes >> 8 & 0xFF], -1).astype(np.uint8)
    return _words(pair.view(ml_dtypes.float8_e4m3fn).astype(np.float16))


def _and_or(a: Lanes, b: Lanes, c: Lanes, table: Lanes) -> Lanes:
    assert (table == 0xEA).all(), "another function of three bits"
    return a & b | c


def _turned(low: Lanes, high: Lanes, by: Lanes) -> Lanes:
    both = high.astype(np.uint64) << np.uint64(32) | low
    return (both >> (by & 31).astype(np.uint64)).astype(np.uint32)


_PURE: dict[str, Callable[..., Lanes]] = {
    "mov.b32": lambda a: a,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "shl.b32": lambda a, b: a << b,
    "shr.b32": lambda a, b: a >> b,
    "add.u32": lambda a, b: a + b,
    "lop3.b32": _and_or,
    "shf.r.wrap.b32": _turned,
    "mul.lo.u32": lambda a, b: a * b,
    "cvt.u16.u32": lambda a: a & 0xFFFF,
    "sub.rn.f16x2": lambda a, b: _words(_halves(a) - _halves(b)),
    "mul.rn.f16x2": lambda a, b: _words(_halves(a) * _halves(b)),
    "mul.rn.f32": lambda a, b: _bits(_float(a) * _float(b)),
    "cvt.f32.f16": lambda a: _bits(_halves(a)[..., 0].astype(np.float32)),
    "cvt.rn.f16x2.f32": lambda a, b: _words(np.stack([_float(b), _float(a)], -1).astype(np.float16)),
    "cvt.rn.f16x2.e4m3x2": _e4m3x2,
}
_LOADS = {"ld.shared.b32": 4, "ld.shared.f32": 4, "ld.shared.u16": 2, "ld.shared.v4.b32": 16}


def _step(name: str, operands: list[str], registers: dict[str, Lanes], memory: NDArray[np.uint8]) -> None:
    def value(operand: str) -> Lanes:
        if operand in registers:
            return registers[operand]
        number = int(operand[2:], 16) if operand.startswith("0f") else int(operand, 0)
        return np.full(32, number, np.uint32)

    targets = operands[0].strip("{}").replace(" ", "").split(",")
    if name in _LOADS:
        match = _ADDRESS.fullmatch(operands[1])
        assert match, operands
        at = registers[match[1]].astype(np.int64) + int(match[2] or 0)
        size = _LOADS[name]
        assert not (at % size).any(), f"{name} of {at} is not aligned"
        loaded = memory[at[:, None] + np.arange(size)]
        padded = np.pad(loaded, ((0, 0), (0, -size % 4))).copy().view(np.uint32)
        registers.update({target: padded[:, word] for word, target in enumerate(targets)})
    elif name == "prmt.b32":
        a, b, selector = (value(operand) for operand in operands[1:])
        pool = np.stack([a, b], -1).copy().view(np.uint8)
        chosen = [pool[:, int(selector[0]) >> 4 * byte & 7] for byte in range(4)]
        registers[targets[0]] = np.stack(chosen, -1).copy().view(np.uint32)[:, 0]
    elif len(targets) == 2:
        word = value(operands[1])
        registers[targets[0]], registers[targets[1]] = word & 0xFFFF, word >> 16
    else:
        registers[targets[0]] = _PURE[name](*(value(operand) for operand in operands[1:]))
