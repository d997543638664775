"""The threads of one program that run straight-line PTX: registers are arrays over them, memory is one array of bytes.

Only what gdn_step/ptx.py writes; an instruction that is not known is an error. All threads take a line together, so a
missing barrier would not show in values. Therefore shared memory remembers who wrote what since the last one: to read
another warp's word before a barrier, or to write over one that another has read, is an error.
"""

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np

Words = np.ndarray
"""uint32 or, for addresses, int64 [threads]"""
_ARGUMENT = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")


def _float(word: Words) -> Words:
    return word.astype(np.uint32).view(np.float32)


def _bits(value: Words) -> Words:
    return np.asarray(value, np.float32).view(np.uint32)


def _floats(operation: Callable[..., Words]) -> Callable[..., Words]:
    def run(*words: Words) -> Words:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return _bits(operation(*(_float(word).astype(np.float64) for word in words)))

    return run


_PURE: dict[str, Callable[..., Words]] = {
    "mov.b32": lambda a: a,
    "mov.u32": lambda a: a,
    "and.b32": lambda a, b: a & b,
    "shr.u32": lambda a, b: a >> b,
    "shl.b32": lambda a, b: a << b,
    "add.u32": lambda a, b: a + b,
    "cvt.u64.u32": lambda a: a.astype(np.int64),
    "add.u64": lambda a, b: a.astype(np.int64) + b.astype(np.int64),
    "mul.wide.u32": lambda a, b: a.astype(np.int64) * b.astype(np.int64),
    "cvt.f32.f16": lambda a: _bits(a.astype(np.uint16).view(np.float16)),
    "cvt.rn.f16.f32": lambda a: _float(a).astype(np.float16).view(np.uint16).astype(np.uint32),
    "cvt.rn.bf16.f32": lambda a: _float(a).astype(ml_dtypes.bfloat16).view(np.uint16).astype(np.uint32),
    "add.rn.f32": _floats(lambda a, b: a + b),
    "sub.rn.f32": _floats(lambda a, b: a - b),
    "mul.rn.f32": _floats(lambda a, b: a * b),
    "fma.rn.f32": _floats(lambda a, b, c: a * b + c),
    "min.f32": _floats(np.minimum),
    "max.f32": _floats(np.maximum),
    "abs.f32": _floats(np.abs),
    "ex2.approx.ftz.f32": _floats(np.exp2),
    "lg2.approx.ftz.f32": _floats(np.log2),
    "rcp.approx.ftz.f32": _floats(lambda a: 1.0 / a),
    "rsqrt.approx.ftz.f32": _floats(lambda a: 1.0 / np.sqrt(a)),
    "setp.lt.u32": lambda a, b: a < b,
    "setp.eq.u32": lambda a, b: a == b,
    "setp.ne.s32": lambda a, b: a != b,
    "setp.ge.s32": lambda a, b: a.astype(np.int32) >= b.astype(np.int32),
    "setp.gt.and.s32": lambda a, b, p: (a.astype(np.int32) > b.astype(np.int32)) & p,
    "setp.eq.and.u32": lambda a, b, p: (a == b) & p,
    "and.pred": lambda a, b: a & b,
    "selp.b32": lambda a, b, p: np.where(p, a, b),
    "selp.b64": lambda a, b, p: np.where(p, a, b),
}


class Program:
    """`threads` threads with `memory` (bytes, addressed from 0) and shared memory of their own."""

    def __init__(self, threads: int, memory: np.ndarray, shared_bytes: int) -> None:
        self.threads, self.memory = threads, memory
        self.shared = np.full(shared_bytes // 4, 0x7FC00000, np.uint32)  # NaN until written
        self.warp = np.arange(threads) // 32
        self.clear()

    def clear(self) -> None:
        """What a barrier ends: nobody has touched shared memory since."""
        self.writer = np.full(self.shared.shape, -1)
        self.reader = np.full(self.shared.shape, -1)

    def run(self, text: str, operands: dict[str, int]) -> None:
        """Run a block; operands by their names ($1 ...)."""
        self.registers: dict[str, Words] = {"%tid.x": np.arange(self.threads, dtype=np.uint32), "step": self._all(0)}
        self.registers |= {name: np.full(self.threads, value, np.int64) for name, value in operands.items()}
        body = text.strip()
        assert body.startswith("{")
        assert body.endswith("}")
        for line in body[1:-1].split(";"):
            words = line.strip()
            if not words or words.startswith((".reg", ".shared")):
                continue
            active = self._all(1).astype(bool)
            if words.startswith("@"):
                guard, _, words = words.partition(" ")
                active = self.registers[guard[1:]].astype(bool)
            name, _, rest = words.partition(" ")
            self._step(name, _ARGUMENT.findall(rest), active)

    def _all(self, value: int) -> Words:
        return np.full(self.threads, value, np.uint32)

    def _get(self, name: str) -> Words:
        if name in self.registers:
            return self.registers[name]
        return self._all(int(name[2:], 16) if name.startswith("0f") else int(name, 0))

    def _set(self, name: str, value: Words, active: Words) -> None:
        before = self.registers.get(name, np.zeros_like(value))
        self.registers[name] = np.where(active, value, before)

    def _address(self, text: str) -> Words:
        name, _, offset = text.strip("[]").partition("+")
        return self._get(name).astype(np.int64) + int(offset or 0)

    def _step(self, name: str, args: list[str], active: Words) -> None:
        if name == "bar.sync":
            self.clear()
        elif name.startswith(("ld.", "st.")):
            self._move(name, args, active)
        elif name == "shfl.sync.bfly.b32":
            self._set(args[0], self._get(args[1])[np.arange(self.threads) ^ int(args[2])], active)
        elif name == "mov.b32" and args[0].startswith("{"):
            low, high = args[0].strip("{}").split(",")
            word = self._get(args[1])
            self._set(low, word & 0xFFFF, active)
            self._set(high, word >> 16, active)
        else:
            self._set(args[0], _PURE[name](*(self._get(arg) for arg in args[1:])), active)

    def _move(self, name: str, args: list[str], active: Words) -> None:
        kind, space, *_, size = name.split(".")
        names, place = (args[0], args[1]) if kind == "ld" else (args[1], args[0])
        registers = names.strip("{}").split(",")
        width = 2 if size == "b16" else 4
        at = self._address(place)
        assert not (at[active] % (width * len(registers))).any(), f"{name} is not aligned"
        for number, register in enumerate(registers):
            each = at + width * number
            if space == "shared":
                self._shared(kind, register, each // 4, active)
            elif kind == "ld":
                found = self.memory[each[active, None] + np.arange(width)].copy().view("<u4")[:, 0]
                value = self._all(0)
                value[active] = found
                self._set(register, value, active)
            else:
                data = self._get(register).astype(f"<u{width}").view(np.uint8).reshape(-1, width)
                self.memory[each[active, None] + np.arange(width)] = data[active]

    def _shared(self, kind: str, register: str, at: Words, active: Words) -> None:
        at, warp = at[active], self.warp[active]
        others = (self.writer[at] != -1) & (self.writer[at] != warp)
        assert not others.any(), "another warp wrote this since the last barrier"
        if kind == "ld":
            value = self._all(0)
            value[active] = self.shared[at]
            self._set(register, value, active)
            self.reader[at] = np.where((self.reader[at] == -1) | (self.reader[at] == warp), warp, -2)
        else:
            read = (self.reader[at] != -1) & (self.reader[at] != warp)
            assert not read.any(), "another warp has read this since the last barrier"
            self.shared[at] = self._get(register)[active].astype(np.uint32)
            self.writer[at] = warp
