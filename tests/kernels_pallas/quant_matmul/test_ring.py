"""The ring's PTX on emulated threads: what a lane reads is what its warp's block holds for it, zeros past the end."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from kernels_pallas.packing import FORMATS, pack
from kernels_pallas.quant_matmul.ring import Inputs, Ring, parts_of
from tests.kernels_pallas.quant_matmul.natural import natural_planes

Values = np.ndarray


class Threads:
    """The threads of one program, their registers as int64 arrays; copies land when somebody waits for them."""

    def __init__(self, count: int, device: bytes, shared_bytes: int) -> None:
        self.count, self.device = count, device
        self.shared = np.full(shared_bytes, 0xEE, np.uint8)
        self.open: list[tuple[int, bytes]] = []
        self.groups: list[list[tuple[int, bytes]]] = []
        self.registers: dict[str, Values] = {}

    def run(self, text: str, **operands: int) -> None:
        """Run a block; operands by their number, as `_1=5`."""
        self.registers = {"%tid.x": np.arange(self.count)}
        self.registers |= {f"${name[1:]}": np.full(self.count, value) for name, value in operands.items()}
        for line in text.strip("{}").split(";"):
            name, _, rest = line.strip().partition(" ")
            if name and name != ".reg":
                self._step(name, re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest))

    def _get(self, name: str) -> Values:
        return self.registers[name] if name in self.registers else np.full(self.count, int(name))

    def _address(self, text: str) -> Values:
        name, offset = text.strip("[]").split("+")
        return self._get(name) + int(offset)

    def _step(self, name: str, args: list[str]) -> None:
        if name.endswith("commit_group"):
            self.groups.append(self.open)
            self.open = []
        elif name.endswith("wait_group"):
            while len(self.groups) > int(args[0]):
                for at, data in self.groups.pop(0):
                    self.shared[at : at + len(data)] = np.frombuffer(data, np.uint8)
        elif name.startswith("bar."):
            pass  # threads run in step here
        elif name.startswith("cp.async"):
            size, kept = int(args[2]), self._get(args[3])
            for target, source, n in zip(self._address(args[0]), self._address(args[1]), kept, strict=True):
                assert source % size == 0
                assert target % size == 0
                self.open.append((int(target), self.device[source : source + n].ljust(size, b"\0")))
        elif name.startswith("ld.shared"):
            targets = args[0].strip("{}").split(",")
            words = [self.shared[at : at + 4 * len(targets)].view("<u4") for at in self._address(args[1])]
            self.registers |= {target: np.array([word[i] for word in words]) for i, target in enumerate(targets)}
        else:
            self.registers[args[0]] = SCALAR[name](*[self._get(arg) for arg in args[1:]])


SCALAR: dict[str, Callable[..., Values]] = {
    "mov.u32": lambda a: a,
    "add.u32": lambda a, b: a + b,
    "min.u32": np.minimum,
    "shl.b32": lambda a, b: a << b,
    "and.b32": lambda a, b: a & b,
    "shr.u32": lambda a, b: a >> b,
    "mul.lo.u32": lambda a, b: a * b,
    "mad.lo.u32": lambda a, b, c: a * b + c,
    "cvt.u64.u32": lambda a: a,
    "add.u64": lambda a, b: a + b,
    "setp.lt.s32": lambda a, b: a < b,
    "selp.b32": lambda a, b, p: np.where(p, a, b),
}


def lane_words(plane: str, packed: np.ndarray, piece: int) -> np.ndarray:
    """uint32 [32, words]: what each lane of a warp multiplies of one block (test_ptx.py proves that it is right)."""
    if plane == "scales":
        words = packed.view("<u4")
        return words.reshape(8, 4)[np.arange(32) // 4] if words.size == 32 else words.reshape(32, 2)
    return np.ascontiguousarray(packed[piece]).view("<u4").reshape(32, -1)


@pytest.mark.parametrize("format", FORMATS)
def test_lanes_read_what_their_warps_block_holds(format: str) -> None:
    form = FORMATS[format]
    warps, tiles, stages, blocks = 2, 2, 2, 3
    packed = pack(format, natural_planes(format, 16 * tiles, blocks * 4 * form.chunk, seed=1))
    ring = Ring(form=form, warps=warps, tiles=tiles, stages=stages)
    device, starts = b"", []
    for tile in range(tiles):
        for part in parts_of(form):
            device = device.ljust(-(-len(device) // 16) * 16, b"\0")
            starts.append(len(device))
            device += packed[part.plane][tile].tobytes()
    threads = Threads(32 * warps, device, ring.size_bytes)
    first = 1 + len(starts)
    for step in range(stages):
        operands = {f"_{1 + i}": start for i, start in enumerate(starts)}
        operands |= {f"_{first}": step * ring.stage_bytes, f"_{first + 1}": step, f"_{first + 2}": blocks}
        threads.run(ring.copy_text(), **operands)
    for step in range(stages):
        wait, at = f"cp.async.wait_group {stages - 1 - step}; ", 0
        for tile in range(tiles):
            for part in parts_of(form):
                for piece in range(part.count):
                    threads.run(ring.read_text(part, at, wait), **{f"_{part.words}": step * ring.stage_bytes})
                    got = np.stack([threads.registers[f"${i}"] for i in range(part.words)], axis=1)
                    for warp in range(warps):
                        block = step * warps + warp
                        expected = np.zeros((32, part.words), np.uint32)
                        if block < blocks:
                            expected = lane_words(part.plane, packed[part.plane][tile, block], piece)
                        np.testing.assert_array_equal(got[32 * warp : 32 * (warp + 1)], expected)
                    at += part.warp_bytes * warps


@pytest.mark.parametrize("format", FORMATS)
def test_copies_and_reads_of_a_stage_cover_the_same_bytes(format: str) -> None:
    ring = Ring(form=FORMATS[format], warps=4, tiles=1, stages=1)
    stored = sum(part.warp_bytes * part.count * 4 for part in parts_of(FORMATS[format]))
    assert (ring.stage_bytes, ring.size_bytes) == (stored, stored)


@pytest.mark.parametrize("format", ["bf16", "fp8_row", "q4_g64"])
@pytest.mark.parametrize("rows", [1, 3, 8, 11])
def test_lanes_find_their_pieces_of_x(format: str, rows: int) -> None:
    form = FORMATS[format]
    warps, stages, blocks, chunk = 2, 2, 3, form.chunk
    x = np.random.default_rng(2).integers(0, 1 << 16, (rows, 4 * chunk * blocks), dtype=np.uint16)
    inputs = Inputs(form=form, rows=rows, row_bytes=x[0].nbytes)
    ring = Ring(form=form, warps=warps, tiles=1, stages=stages, inputs=inputs)
    parts = parts_of(form)
    device = bytes(blocks * 4096) + x.tobytes()
    threads = Threads(32 * warps, device, ring.size_bytes)
    for step in range(stages):
        operands = {f"_{1 + i}": 0 for i in range(len(parts))} | {f"_{1 + len(parts)}": blocks * 4096}
        places = (step * ring.stage_bytes, step, blocks)
        operands |= {f"_{2 + len(parts) + i}": value for i, value in enumerate(places)}
        threads.run(ring.copy_text(), **operands)
    lane = np.arange(32)
    for step in range(stages):
        threads.run(ring.read_text(parts[0], 0, f"cp.async.wait_group {stages - 1 - step}; "), _4=0)
        for half in range(-(-rows // 8)):
            for j, offsets in enumerate(inputs.pieces()):
                for piece, offset in enumerate(offsets):
                    threads.run(inputs.read_text(half, offset), _4=step * ring.stage_bytes + ring.tile_bytes)
                    got = np.stack([threads.registers[f"${i}"] for i in range(4)], axis=1).astype("<u4")
                    # a lane multiplies a quarter of each chunk, of 16-bit weights a quarter of two
                    run = {64: 64 * j + 16 * (lane % 4) + 8 * piece, 32: 32 * j + 8 * (lane % 4)}
                    column = run.get(chunk, 32 * (j // 2) + 8 * (lane % 4))
                    row = np.minimum(lane // 4 + 8 * half, rows - 1)
                    for warp in range(warps):
                        block = step * warps + warp
                        if block >= blocks:
                            assert not got[32 * warp : 32 * (warp + 1)].any()
                            continue
                        for each in lane:
                            at = 4 * chunk * block + column[each]
                            expected = x[row[each], at : at + 8].view("<u4")
                            np.testing.assert_array_equal(got[32 * warp + each], expected)
