"""A ring of blocks in shared memory, filled by asynchronous copies: bytes under way cost no registers.

A warp copies what its lanes will multiply, so that programs have nothing to synchronise: codes into places of the
lane's own, scales that neighbours share and rows of x once for all of them. A stage of the ring is one block of every
warp for each of the program's tiles, and their x. Built of inline PTX (`cp.async`), because Pallas-Triton has no such
loads outside of its own dot pipelines. Knows the planes' sizes, not what is in them. Invariant: one group of copies is
committed per stage and step, also where there is nothing to copy (then the place is filled with zeros), so that
counting groups is enough to wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import jax
import jax.numpy as jnp

from kernels_pallas.overlap import assembly
from kernels_pallas.packing import PackedFormat

Ref = Any  # pallas refs have no public type
MAX_BYTES = 48 << 10
"""Static shared memory of one program."""


@attrs.frozen(kw_only=True)
class Part:
    """What a lane copies of one plane for one block: `count` pieces of `size` bytes."""

    plane: str
    size: int
    count: int
    block_bytes: int
    piece_bytes: int
    """From one piece to the next in the plane."""
    lane_shift: int
    """Lane / 2**lane_shift tells which of the block's runs of `size` bytes is the lane's: neighbours may share one."""

    @property
    def words(self) -> int:
        """Registers of a piece."""
        return self.size // 4

    @property
    def warp_bytes(self) -> int:
        """A piece of a warp."""
        return (32 >> self.lane_shift) * self.size


def open_ring(ref: Ref, size_bytes: int) -> jax.Array:
    """int32: where so much shared memory lies. Once a program, at its start; `ref` is any operand."""
    text = f"{{ .reg .b64 t; .shared .align 16 .b8 ring[{size_bytes}]; mov.u64 t, $1; mov.u32 $0, ring; }}"
    return assembly(text, "=r,l", addresses=[(ref, (0,) * ref.ndim)])


def parts_of(form: PackedFormat) -> list[Part]:
    """The planes that run along K, in the order of the operands of ptx.py: codes, high, scales."""
    parts = [Part(plane="codes", size=16, count=4, block_bytes=2048, piece_bytes=512, lane_shift=0)]
    if form.bits in (5, 6):
        size = 4 * (form.bits - 4)
        parts.append(
            Part(plane="high", size=size, count=4, block_bytes=128 * size, piece_bytes=32 * size, lane_shift=0)
        )
    if form.group == 16:
        parts.append(Part(plane="scales", size=8, count=1, block_bytes=256, piece_bytes=0, lane_shift=0))
    elif form.group is not None:
        parts.append(Part(plane="scales", size=16, count=1, block_bytes=128, piece_bytes=0, lane_shift=2))
    return parts


@attrs.frozen(kw_only=True)
class Inputs:
    """The rows of x that go with one block of one warp: 16 bytes a lane and copy, rows one after the other."""

    form: PackedFormat
    rows: int
    row_bytes: int
    """From one row of x to the next in memory."""

    @property
    def block_bytes(self) -> int:
        """One block of a row."""
        return 8 * self.form.chunk

    @property
    def pitch(self) -> int:
        """From row to row in the ring: a quarter of a warp reads pieces of two rows, which so lie in other banks."""
        return self.block_bytes + (16 if self.form.chunk == 64 else 64)

    @property
    def together(self) -> int:
        """Rows that the lanes of a warp copy at once."""
        return 64 // self.form.chunk

    @property
    def copies(self) -> int:
        """Copies of a lane."""
        return -(-self.rows // self.together)

    @property
    def warp_bytes(self) -> int:
        """One stage of one warp."""
        return self.copies * self.together * self.pitch

    def copy_text(self, source: str, place: str) -> str:
        """PTX, given lane l, block b, thread t and its size n: `place` is the register with the stage's first x."""
        lanes = 32 // self.together
        text = f" and.b32 u, l, {lanes - 1}; shl.b32 u, u, 4; shr.u32 v, l, {lanes.bit_length() - 1};"
        text += f" shr.u32 w, t, 5; mad.lo.u32 w, w, {self.warp_bytes}, {place}; mad.lo.u32 w, v, {self.pitch}, w;"
        text += f" add.u32 w, w, u; mad.lo.u32 u, b, {self.block_bytes}, u;"
        for i in range(self.copies):
            # rows past the last repeat it
            text += f" add.u32 o, v, {i * self.together}; min.u32 o, o, {self.rows - 1};"
            text += f" mad.lo.u32 o, o, {self.row_bytes}, u; cvt.u64.u32 r, o; add.u64 q, {source}, r;"
            text += f" cp.async.ca.shared.global [w+{i * self.together * self.pitch}], [q+0], 16, n;"
        return text

    def pieces(self) -> list[list[int]]:
        """[chunk][piece]: where in a block's row the first column's lane finds its 16 bytes, and how far the next."""
        chunk = self.form.chunk
        if chunk == 64:
            return [[128 * j, 128 * j + 16] for j in range(4)]
        # two chunks of 16 share one piece
        return [[64 * j] for j in range(4)] if chunk == 32 else [[64 * (j // 2)] for j in range(4)]

    def read_text(self, half: int, offset: int) -> str:
        """PTX that reads a lane's 16 bytes, `offset` of `pieces`; the stage's first x is the operand behind them."""
        width = 32 if self.form.chunk == 64 else 16
        text = "{ .reg .b32 t,l,c; mov.u32 t, %tid.x; and.b32 l, t, 31; shr.u32 t, t, 5;"
        text += f" mad.lo.u32 t, t, {self.warp_bytes}, $4; and.b32 c, l, 3; mad.lo.u32 t, c, {width}, t;"
        text += f" shr.u32 l, l, 2; add.u32 l, l, {8 * half}; min.u32 l, l, {self.rows - 1};"
        return text + f" mad.lo.u32 t, l, {self.pitch}, t; ld.shared.v4.b32 {{$0,$1,$2,$3}}, [t+{offset}]; }}"


@attrs.frozen(kw_only=True)
class Ring:
    """The places of one program."""

    form: PackedFormat
    warps: int
    tiles: int
    stages: int
    inputs: Inputs | None = None
    """None: x does not go through the ring."""

    @property
    def tile_bytes(self) -> int:
        """One stage of one tile."""
        return sum(part.warp_bytes * part.count for part in parts_of(self.form)) * self.warps

    @property
    def size_bytes(self) -> int:
        """Shared memory of a program."""
        return self.stage_bytes * self.stages

    @property
    def stage_bytes(self) -> int:
        """From a stage to the next: `copy` and `take` are told the place."""
        return self.tile_bytes * self.tiles + (0 if self.inputs is None else self.inputs.warp_bytes * self.warps)

    def copy_text(self) -> str:
        """PTX that copies one step: $1.. the planes' addresses tile by tile, [x's,] the place, the step, the limit."""
        parts = parts_of(self.form) * self.tiles
        behind = 1 + len(parts) + (self.inputs is not None)
        place, step, limit = (f"${behind + i}" for i in range(3))
        text = "{ .reg .pred p; .reg .b32 t,l,b,n,o,u,v,w; .reg .b64 q,r;"
        # lanes read what others have copied: all must be done with the place
        text += " bar.warp.sync 0xffffffff; mov.u32 t, %tid.x; and.b32 l, t, 31; shr.u32 b, t, 5;"
        text += f" mad.lo.u32 b, {step}, {self.warps}, b; setp.lt.s32 p, b, {limit};"
        at = 0
        for i, part in enumerate(parts):
            text += f" selp.b32 n, {part.size}, 0, p; shr.u32 o, l, {part.lane_shift}; mul.lo.u32 o, o, {part.size};"
            text += f" shr.u32 u, t, 5; mad.lo.u32 u, u, {part.warp_bytes}, o; add.u32 u, u, {place};"
            text += f" mad.lo.u32 o, b, {part.block_bytes}, o; cvt.u64.u32 r, o; add.u64 q, ${1 + i}, r;"
            mode = "cg" if part.size == 16 else "ca"
            for piece in range(part.count):
                text += f" cp.async.{mode}.shared.global [u+{at}], [q+{piece * part.piece_bytes}], {part.size}, n;"
                at += part.warp_bytes * self.warps
        if self.inputs is not None:
            text += f" selp.b32 n, 16, 0, p; add.u32 o, {place}, {at};" + self.inputs.copy_text(f"${behind - 1}", "o")
        return text + " mov.u32 $0, 0; cp.async.commit_group; }"

    def copy(
        self, place: jax.Array, refs: Mapping[str, Ref], layer: Any, tiles: list[Any], step: Any, limit: Any
    ) -> None:
        """Begin to copy the blocks of `step` to the stage at `place`; blocks from `limit` on become zeros."""
        planes = [refs[part.plane] for part in parts_of(self.form)]
        starts = [(plane, (layer, tile) + (0,) * (plane.ndim - 2)) for tile in tiles for plane in planes]
        if self.inputs is not None:
            starts.append((refs["x"], (0,)))
        values = [place, jnp.asarray(step, jnp.int32), jnp.asarray(limit, jnp.int32)]
        constraints = ",".join(["=r", *["l"] * len(starts), "r", "r", "r"])
        assembly(self.copy_text(), constraints, addresses=starts, values=values)

    def take(self, place: jax.Array, anchor: jax.Array) -> list[list[list[jax.Array]]]:
        """Wait for the oldest step, which is at `place`, and read it: [tile][chunk][operand], as ptx.py wants them.

        `anchor` is a loaded tensor [warps, 128]: Triton gives the results its layout, four neighbours a lane.
        """
        base = jnp.broadcast_to(place, (self.warps, 128))
        at = 0
        # what other lanes of the warp have copied is seen after the second
        wait = f"cp.async.wait_group {self.stages - 1}; bar.warp.sync 0xffffffff; "
        result: list[list[list[jax.Array]]] = []
        for _ in range(self.tiles):
            chunks: list[list[jax.Array]] = [[] for _ in range(4)]
            for part in parts_of(self.form):
                for piece in range(part.count):
                    got = self._read(part, at, wait, base, anchor)
                    wait = ""
                    for j in [piece] if part.count == 4 else range(4):
                        chunks[j].append(got)
                    at += part.warp_bytes * self.warps
            result.append(chunks)
        return result

    def take_inputs(self, place: jax.Array, anchor: jax.Array, halves: int) -> list[list[list[jax.Array]]]:
        """x of the step that `take` has waited for: [half][chunk][piece], as `lanes.load_x` gives them."""
        assert self.inputs is not None, "x does not go through this ring"
        base = jnp.broadcast_to(place + self.tile_bytes * self.tiles, (self.warps, 128))
        out = jax.ShapeDtypeStruct(base.shape, jnp.uint32)
        constraints = ",".join(["=r"] * 4 + ["r"] * 8)
        found: dict[tuple[int, int], jax.Array] = {}
        for half in range(halves):
            for offset in {offset: None for offsets in self.inputs.pieces() for offset in offsets}:
                text = self.inputs.read_text(half, offset)
                found[half, offset] = assembly(text, constraints, values=[base, anchor], result=out, pack=4)
        return [[[found[half, at] for at in offsets] for offsets in self.inputs.pieces()] for half in range(halves)]

    def read_text(self, part: Part, at: int, wait: str = "") -> str:
        """PTX that reads a lane's piece at `at` of a stage, whose place is the first operand behind the results."""
        width = part.words
        targets = "$0" if width == 1 else "{" + ",".join(f"${i}" for i in range(width)) + "}"
        kind = "b32" if width == 1 else f"v{width}.b32"
        text = f"{{ .reg .b32 t; {wait}mov.u32 t, %tid.x; shr.u32 t, t, {part.lane_shift};"
        text += f" mad.lo.u32 t, t, {part.size}, ${width};"
        return text + f" ld.shared.{kind} {targets}, [t+{at}]; }}"

    def _read(self, part: Part, at: int, wait: str, base: jax.Array, anchor: jax.Array) -> jax.Array:
        dtype = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[part.words]
        constraints = ",".join(["=r"] * part.words + ["r"] * 8)
        out = jax.ShapeDtypeStruct(base.shape, dtype)
        return assembly(self.read_text(part, at, wait), constraints, values=[base, anchor], result=out, pack=4)
