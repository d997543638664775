"""Which tiles the prefill matmul takes for a shape. Knows shapes, not weights.

Invariant: nothing chosen here changes a bit of the result. Every output element is the sum over K in steps of 16 in
rising order in one float32 accumulator, whatever the tile, the number of stages, the order of the tiles and the number
of rows; so tiles may depend on the number of rows as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

Axis = Literal["t", "n"]

WARPGROUP_ROWS = 64
"""Rows of one wgmma instruction."""
MULTIPROCESSORS = 132
SHARED_BYTES = 231_000
"""What a block may use of 232,448, less room for barriers and alignment."""
MAX_STAGES = 8
SWIZZLES_BYTES = (128, 64, 32)
"""Rows of a tile in shared memory that the tile copies can swizzle."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tiles:
    """How one output [T, N] is cut. All lengths are elements, `tile_*` are what one block of the grid holds.

    rows, columns: one block's part of T and of the rows of w. Two warpgroups share it along `shared`.
    depth: the piece of K of one pipeline stage. stages: how many of them lie in shared memory.
    out_rows, out_columns: the piece of a warpgroup's result that one store moves; out_slots of them may be under way.
    walk, walk_width: the grid goes in stripes of `walk_width` tiles of axis `walk`, every other one backwards.
    cluster: the axis along which two blocks sit beside each other and share the other operand's tile, or None.
    in_flight: how many stages' products may still run when the next is started: 0 or 1.
    """

    rows: int
    columns: int
    depth: int = 64
    stages: int = 4
    shared: Axis = "t"
    out_rows: int = 64
    out_columns: int = 64
    out_slots: int = 2
    walk: Axis = "t"
    walk_width: int = 8
    cluster: Axis | None = None
    in_flight: int = 1

    def __post_init__(self) -> None:
        if self.warpgroup_rows % WARPGROUP_ROWS or self.warpgroup_columns % 8 or self.warpgroup_columns > 256:
            raise ValueError(f"a warpgroup cannot hold {self.warpgroup_rows} x {self.warpgroup_columns} of {self}")
        if self.in_flight not in (0, 1) or self.stages <= self.in_flight:
            raise ValueError(f"in_flight={self.in_flight} does not fit stages={self.stages}")

    @property
    def warpgroup_rows(self) -> int:
        """Rows of the result that one of the two warpgroups holds."""
        return self.rows // 2 if self.shared == "t" else self.rows

    @property
    def warpgroup_columns(self) -> int:
        """Columns of the result that one of the two warpgroups holds."""
        return self.columns // 2 if self.shared == "n" else self.columns


def fitted(rows: int, columns: int, *, gated: bool, out_bytes: int, **chosen: object) -> Tiles:
    """Tiles with as many stages as shared memory holds beside the pieces of an output of `out_bytes` an element.

    Raises NotImplementedError where the result is too narrow to leave by tile copies.
    """
    given = Tiles(rows=rows, columns=columns, **chosen)  # type: ignore[arg-type]
    width = given.warpgroup_columns // (2 if gated else 1)
    allowed = [c for c in (64, 32, 16, 8) if width % c == 0 and c * out_bytes in SWIZZLES_BYTES]
    if not allowed:
        raise NotImplementedError(f"no swizzle for {width} columns of {out_bytes} bytes")
    out_columns = allowed[0]
    out = 2 * given.out_slots * given.out_rows * out_columns * out_bytes
    stage = (rows + columns) * given.depth * 2
    stages = min(MAX_STAGES, (SHARED_BYTES - out) // stage)
    return dataclasses.replace(given, stages=stages, out_columns=out_columns)


def tiles_for(t: int, n: int, k: int, *, gated: bool, out_bytes: int) -> Tiles:
    """The tiles for x [t, k] and w [n, k]: the tuned ones, or those that look cheapest for a shape not tuned.

    Raises NotImplementedError where no tiles cut the shape.
    """
    candidates = [c for c in _candidates(gated, out_bytes) if n % (c.columns * (2 if c.cluster == "n" else 1)) == 0]
    if t % WARPGROUP_ROWS or k % 64 or not candidates:
        raise NotImplementedError(f"no tiles cut T={t}, N={n}, K={k}: T and K must be multiples of 64, N one of 16")
    return min(candidates, key=lambda tiles: _clocks(t, n, k, tiles))


def _candidates(gated: bool, out_bytes: int) -> Iterator[Tiles]:
    for rows, columns in ((256, 160), (128, 256), (256, 128), (128, 160), (128, 128), (128, 80), (128, 64), (128, 32)):
        if not gated or columns % 32 == 0:
            # Large tiles hide a stage's wait in the other warpgroup's products; releasing it early feeds the loader.
            in_flight = 0 if rows * columns >= 128 * 256 else 1
            yield fitted(rows, columns, gated=gated, out_bytes=out_bytes, in_flight=in_flight)


def _clocks(t: int, n: int, k: int, tiles: Tiles) -> float:
    """A rough count of what a multiprocessor needs: rounds of tiles, each bound by products or by reading."""
    rounds = -(-(-(-t // tiles.rows) * (n // tiles.columns)) // MULTIPROCESSORS)
    products = tiles.rows * tiles.columns * 64 / 2048
    reads = (min(t, tiles.rows) + tiles.columns) * 128 / 32
    return rounds * (k / 64 * max(products, reads) + 3000)
