"""A ring of blocks in shared memory, filled by asynchronous copies: bytes under way cost no registers.

Every lane copies exactly the bytes that it will multiply itself into a place of its own, so that nothing has to be
synchronised: a lane waits for its own copies. A stage of the ring is one block of every warp for each of the program's
tiles. Built of inline PTX (`cp.async`), because Pallas-Triton has no such loads outside of its own dot pipelines.
Knows the planes' sizes, not what is in them. Invariant: one group of copies is committed per stage and step, also where
there is nothing to copy (then the place is filled with zeros), so that counting groups is enough to wait.
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
    """Lane / 2**lane_shift tells which of the block's runs of `size` bytes is the lane's."""

    @property
    def words(self) -> int:
        """Registers of a piece."""
        return self.size // 4


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
class Ring:
    """The places of one program."""

    form: PackedFormat
    warps: int
    tiles: int
    stages: int

    @property
    def tile_bytes(self) -> int:
        """One stage of one tile."""
        return sum(part.size * part.count for part in parts_of(self.form)) * 32 * self.warps

    @property
    def size_bytes(self) -> int:
        """Shared memory of a program."""
        return self.tile_bytes * self.tiles * self.stages

    @property
    def stage_bytes(self) -> int:
        """From a stage to the next: `copy` and `take` are told the place."""
        return self.tile_bytes * self.tiles

    def copy_text(self) -> str:
        """PTX that copies one step: $1.. the planes' addresses tile by tile, then the place, the step, the limit."""
        parts = parts_of(self.form) * self.tiles
        place, step, limit = (f"${1 + len(parts) + i}" for i in range(3))
        text = (
            "{ .reg .pred p; .reg .b32 t,l,b,n,o; .reg .b64 q,r; mov.u32 t, %tid.x; and.b32 l, t, 31; shr.u32 b, t, 5;"
        )
        text += f" mad.lo.u32 b, {step}, {self.warps}, b; setp.lt.s32 p, b, {limit};"
        at = 0
        for i, part in enumerate(parts):
            text += f" selp.b32 n, {part.size}, 0, p; shr.u32 o, l, {part.lane_shift}; mul.lo.u32 o, o, {part.size};"
            text += f" mad.lo.u32 o, b, {part.block_bytes}, o; cvt.u64.u32 r, o; add.u64 q, ${1 + i}, r;"
            text += f" mad.lo.u32 o, t, {part.size}, {place};"
            mode = "cg" if part.size == 16 else "ca"
            for piece in range(part.count):
                text += f" cp.async.{mode}.shared.global [o+{at}], [q+{piece * part.piece_bytes}], {part.size}, n;"
                at += part.size * 32 * self.warps
        return text + " mov.u32 $0, 0; cp.async.commit_group; }"

    def copy(
        self, place: jax.Array, refs: Mapping[str, Ref], layer: Any, tiles: list[Any], first: Any, step: Any, limit: Any
    ) -> None:
        """Begin to copy the blocks of `step` to the stage at `place`; blocks from `limit` on become zeros.

        Steps and limit count from block `first` of the tiles.
        """
        planes = [refs[part.plane] for part in parts_of(self.form)]
        starts = [(plane, (layer, tile, first) + (0,) * (plane.ndim - 3)) for tile in tiles for plane in planes]
        values = [place, jnp.asarray(step, jnp.int32), jnp.asarray(limit, jnp.int32)]
        constraints = ",".join(["=r", *["l"] * len(starts), "r", "r", "r"])
        assembly(self.copy_text(), constraints, addresses=starts, values=values)

    def take(self, place: jax.Array, anchor: jax.Array) -> list[list[list[jax.Array]]]:
        """Wait for the oldest step, which is at `place`, and read it: [tile][chunk][operand], as ptx.py wants them.

        `anchor` is a loaded tensor [warps, 128]: Triton gives the results its layout, four neighbours a lane.
        """
        base = jnp.broadcast_to(place, (self.warps, 128))
        at = 0
        wait = f"cp.async.wait_group {self.stages - 1}; "
        result: list[list[list[jax.Array]]] = []
        for _ in range(self.tiles):
            chunks: list[list[jax.Array]] = [[] for _ in range(4)]
            for part in parts_of(self.form):
                for piece in range(part.count):
                    got = self._read(part, at, wait, base, anchor)
                    wait = ""
                    for j in [piece] if part.count == 4 else range(4):
                        chunks[j].append(got)
                    at += part.size * 32 * self.warps
            result.append(chunks)
        return result

    def read_text(self, part: Part, at: int, wait: str = "") -> str:
        """PTX that reads a lane's piece at `at` of a stage, whose place is the first operand behind the results."""
        width = part.words
        targets = "$0" if width == 1 else "{" + ",".join(f"${i}" for i in range(width)) + "}"
        kind = "b32" if width == 1 else f"v{width}.b32"
        text = f"{{ .reg .b32 t; {wait}mov.u32 t, %tid.x; mad.lo.u32 t, t, {part.size}, ${width};"
        return text + f" ld.shared.{kind} {targets}, [t+{at}]; }}"

    def _read(self, part: Part, at: int, wait: str, base: jax.Array, anchor: jax.Array) -> jax.Array:
        dtype = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[part.words]
        constraints = ",".join(["=r"] * part.words + ["r"] * 8)
        out = jax.ShapeDtypeStruct(base.shape, dtype)
        return assembly(self.read_text(part, at, wait), constraints, values=[base, anchor], result=out, pack=4)
