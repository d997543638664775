"""Which tiles the product of packed weights takes for a shape. Knows shapes, not weights.

Invariant: nothing chosen here changes a bit of the result. Every output element is one chain of 16-deep products over K
in rising order, whatever the tile; so tiles may depend on the number of rows of x.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from .tuning import MAX_STAGES, MULTIPROCESSORS, SHARED_BYTES

OPERAND_ROWS = 64
"""Rows of the matrix that one wgmma takes."""
DEPTH = 64
"""K of one operand."""
UNPACK_FROM_TOKENS = 4096
"""From so many rows on an unpacked copy costs less than unpacking a matrix again for every tile along T: at 2,048 rows
both take as long, at 8,192 the copy saves a tenth (q4_g64). Both give the same bits."""
STAGE_DEPTH = 256
"""K of a stage where there is room for it: what a stage costs beside its products is paid less often."""
MAX_COLUMNS = 352
"""What a warpgroup holds of sums: operands times rows of x. More leaves no registers to unpack into."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedTiles:
    """How an output [T, N] is cut: one block's part is `rows` of the matrix and `tokens` rows of x.

    operands: how many times 64 rows of the matrix a computing warpgroup holds (gate and up rows count both).
    warpgroups: how many of a block compute. units: 64s of K of a stage. out_tokens: of a warpgroup's result, what one
    store moves. in_flight: operands whose products may still run when the next is unpacked.
    walk_width: the blocks go in stripes of as many tiles along T.
    """

    tokens: int
    operands: int = 1
    warpgroups: int = 2
    units: int = 1
    stages: int = 4
    out_tokens: int = 64
    in_flight: int = 1
    walk_width: int = 8

    def __post_init__(self) -> None:
        if self.tokens % 8 or self.tokens > 256 or self.operands * self.tokens > MAX_COLUMNS:
            raise ValueError(f"a warpgroup cannot hold {self.operands} times 64 x {self.tokens}")

    @property
    def rows(self) -> int:
        """Rows of the matrix of one block."""
        return OPERAND_ROWS * self.operands * self.warpgroups


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedShape:
    """What tiles are chosen by.

    block_units: 64s of K in a block of the packing, all of which a row's scales are copied for. row_bytes: packed bytes
    of a row and 64 of K, scales apart; scale_bytes: bytes of a row's scales of a whole block. out_bytes: of an element
    of the output. clocks: of one of a multiprocessor's quarters to unpack 16 rows and 64 of K.
    """

    n: int
    k: int
    block_units: int
    row_bytes: float
    scale_bytes: float
    out_bytes: int
    gated: bool
    clocks: int


def fitted(shape: PackedShape, tokens: int, **chosen: int) -> PackedTiles:
    """Tiles with as many stages as shared memory holds.

    Raises NotImplementedError where not even two stages fit, or where the rows of the matrix are no whole tiles.
    """
    given = PackedTiles(tokens=tokens, **{"operands": 2 if shape.gated else 1, **chosen})
    out_tokens = max(size for size in range(8, 97, 8) if tokens % size == 0)
    out = given.warpgroups * out_tokens * OPERAND_ROWS * shape.out_bytes
    wanted = chosen.get("units", max(1, STAGE_DEPTH // max(DEPTH, tokens)))
    units = max(u for u in (1, 2, 4) if shape.block_units % u == 0 and u <= wanted)
    stage = units * (DEPTH * 2 * tokens + given.rows * shape.row_bytes) + given.rows * shape.scale_bytes
    stages = min(MAX_STAGES, int((SHARED_BYTES - out) // stage))
    if stages < 2 or shape.n % given.rows:
        raise NotImplementedError(f"no two stages of {tokens} tokens and {given.rows} of {shape.n} rows")
    return dataclasses.replace(given, units=units, stages=stages, out_tokens=out_tokens)


def packed_tiles_for(shape: PackedShape, t: int) -> PackedTiles:
    """The tiles that look cheapest for x [t, k].

    Raises NotImplementedError where no tiles cut the shape.
    """
    found = list(_candidates(shape, t))
    if t % DEPTH or not found:
        raise NotImplementedError(f"no tiles cut T={t}, N={shape.n}, K={shape.k}")
    return min(found, key=lambda tiles: _clocks(shape, t, tiles))


def _candidates(shape: PackedShape, t: int) -> Iterator[PackedTiles]:
    sizes = [tokens for tokens in (64, 96, 128, 144, 160, 176, 192, 256) if tokens <= max(DEPTH, t)]
    for tokens, operands, warpgroups in itertools.product(sizes, (2,) if shape.gated else (1, 2), (1, 2)):
        if operands * tokens <= MAX_COLUMNS:
            try:
                # Sums of 2 x 176 leave registers for one operand.
                yield fitted(
                    shape, tokens, operands=operands, warpgroups=warpgroups, in_flight=int(operands * tokens <= 320)
                )
            except NotImplementedError:
                continue


def _clocks(shape: PackedShape, t: int, tiles: PackedTiles) -> float:
    """About what a multiprocessor needs: rounds of tiles, each bound by products, by unpacking, or by waiting for both.

    Fitted to tables of tiles on one device; see docs/performance/gpu_notes.md.
    """
    rounds = -(-(-(-t // tiles.tokens) * (shape.n // tiles.rows)) // MULTIPROCESSORS)
    product = 2 * tiles.tokens
    if tiles.warpgroups == 1:
        unit = tiles.operands * (product + shape.clocks + 100)
    else:
        apart = 110 if tiles.in_flight else 200
        unit = tiles.operands * tiles.warpgroups * max(product + apart, shape.clocks + 40)
    return rounds * (shape.k / DEPTH * unit + 5000)
