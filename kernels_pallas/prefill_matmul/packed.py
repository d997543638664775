"""The prefill matmul straight from packed weights, for Hopper: no unpacked copy in memory.

The weights are the left operand of the wgmma: computing warpgroups turn packed blocks from shared memory into registers
(operand.py) while another one's products run, and rows of x are the right operand. So the sums come out transposed,
[N, T], and are turned on their way to memory. A loader warpgroup runs ahead through all tiles of its block.

Interpretation cannot have registers as an operand, so a test gives an `Operand` that goes through shared memory.
Invariant: an output element is the sum that mosaic.py gives, bit for bit: the same 16-bit weights, the same 16-deep
products in rising K in one float32 accumulator. But a row's scale multiplies that sum, and not the weights before they
are rounded to 16 bits.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.typing import DTypeLike

from kernels_pallas.arrays import CHUNK, PackedMatrix

from .epilogue import Epilogue, silu_product, to_dtype
from .operand import operand as operand_in_registers
from .operand_ptx import SUM_SCALE, UNPACK_CLOCKS
from .packed_tuning import DEPTH, OPERAND_ROWS, PackedShape, PackedTiles
from .tuning import MULTIPROCESSORS

_Ref: TypeAlias = Any  # a place in some memory as Pallas hands it to a body; its type has no public name

Operand: TypeAlias = Callable[[str, int, int, dict[str, _Ref]], Any]
"""From a format, a 64 of K, the chunks of a block and planes [4, ...] of four tiles: the left operand [64, 64]."""

TILE_ROWS = 16
OPERAND_TILES = 4  # 64 rows of one wgmma
LOADER_REGISTERS = 40
COMPUTE_REGISTERS = 232


def matmul(
    x: jax.Array,
    matrix: PackedMatrix,
    layer: jax.Array,
    *,
    epilogue: Epilogue,
    residual: jax.Array | None,
    out_dtype: DTypeLike,
    shift: int,
    tiles: PackedTiles,
    operand: Callable[[_Ref], Operand] | None = None,
    spare: Any = None,
    interpret: object = None,
) -> jax.Array:
    """The meaning is `reference.matmul`'s, with w = matrix[layer]. layer int32 [1]; x [T, K], T a multiple of 64.

    operand: makes what unpacks, given `spare` shared memory; the registers of operand.py where it is not given.
    """
    planes = _planes(matrix)
    scaled = [] if matrix.row_scales is None else [matrix.row_scales]
    width = matrix.n // 2 if epilogue == "silu_product" else matrix.n
    _check(x, matrix, tiles, epilogue)
    body = functools.partial(
        _body,
        names=tuple(planes),
        make_operand=operand or (lambda _: operand_in_registers),
        form=matrix.format,
        tiles=tiles,
        epilogue=epilogue,
        shift=shift,
    )
    steps = _steps(x.shape[0], matrix.n, tiles)
    kernel = functools.partial(
        plgpu.kernel,
        body,
        scratch_types=_scratch(x.dtype, matrix.format, planes, out_dtype, tiles, spare),
        grid=(min(MULTIPROCESSORS, steps[0] * steps[1]),),
        grid_names=("block",),
        num_threads=tiles.warpgroups + 1,
        thread_name="warpgroup",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        interpret=interpret,
    )
    result: jax.Array
    if residual is None:
        result = kernel(out_type=jax.ShapeDtypeStruct((x.shape[0], width), out_dtype))(
            x, layer, *planes.values(), *scaled
        )
        return result
    stream = jax.new_ref(residual)  # an operand that is a reference is the kernel's to change: in place, no second copy
    kernel(out_type=())(x, layer, *planes.values(), *scaled, stream)
    result = jax.freeze(stream)
    return result


def shape_of(matrix: PackedMatrix, *, gated: bool, out_bytes: int) -> PackedShape:
    """What the tiles for a matrix are chosen by."""
    units = matrix.codes.shape[3] * CHUNK[matrix.format] // DEPTH

    def row_bytes(plane: jax.Array | None) -> float:
        """Of a block of the packing."""
        return 0.0 if plane is None else plane.dtype.itemsize * math.prod(plane.shape[3:]) / TILE_ROWS

    return PackedShape(
        n=matrix.n,
        k=matrix.k,
        block_units=units,
        row_bytes=(row_bytes(matrix.codes) + row_bytes(matrix.high)) / max(units, 1),
        scale_bytes=row_bytes(matrix.scales),
        out_bytes=out_bytes,
        gated=gated,
        clocks=UNPACK_CLOCKS[matrix.format],
    )


def _check(x: jax.Array, matrix: PackedMatrix, tiles: PackedTiles, epilogue: Epilogue) -> None:
    units = matrix.codes.shape[3] * CHUNK[matrix.format] // DEPTH
    even = epilogue != "silu_product" or tiles.operands == 2
    if x.shape[0] % 64 or matrix.n % tiles.rows or not units or units % tiles.units or not even:
        raise NotImplementedError(f"{tiles} cannot cut x {list(x.shape)} times {matrix.format} {matrix.n} rows")


def _steps(t: int, n: int, tiles: PackedTiles) -> tuple[int, int]:
    """Tiles along T and along N."""
    return pl.cdiv(t, tiles.tokens), n // tiles.rows


def _planes(matrix: PackedMatrix) -> dict[str, jax.Array]:
    """The planes that the format has along K, each [L, N/16, blocks of K, ...]."""
    named = {"codes": matrix.codes, "high": matrix.high, "scales": matrix.scales}
    return {name: plane for name, plane in named.items() if plane is not None}


def _scratch(
    dtype: DTypeLike, form: str, planes: dict[str, jax.Array], out_dtype: DTypeLike, tiles: PackedTiles, spare: Any
) -> dict[str, Any]:
    chunks = tiles.units * DEPTH // CHUNK[form]
    shapes = {
        name: (tiles.rows // TILE_ROWS, *((chunks, 128) if name in _BY_CHUNK else plane.shape[3:]))
        for name, plane in planes.items()
    }
    depth = tiles.units * DEPTH
    return {
        "x_ring": plgpu.SMEM((tiles.stages, tiles.tokens, depth), dtype, transforms=_tiling(depth, dtype)),
        "rings": {name: plgpu.SMEM((tiles.stages, *shapes[name]), plane.dtype) for name, plane in planes.items()},
        "out_pieces": plgpu.SMEM(
            (tiles.warpgroups, tiles.out_tokens, OPERAND_ROWS),
            out_dtype,
            transforms=_tiling(OPERAND_ROWS, out_dtype),
        ),
        "loaded": plgpu.Barrier(num_arrivals=1 + len(planes) * tiles.operands, num_barriers=tiles.stages),
        "released": plgpu.Barrier(num_arrivals=tiles.warpgroups, num_barriers=tiles.stages),
        "spare": spare or {},
    }


_BY_CHUNK = ("codes", "high")
"""Planes of which a stage holds its own part of a block; the other ones' parts are too small for a copy."""


def _tiling(columns: int, dtype: DTypeLike) -> tuple[Any, ...]:
    bytes_each = jnp.dtype(dtype).itemsize
    swizzle = plgpu.find_swizzle(columns * bytes_each * 8)
    return plgpu.TilingTransform((8, swizzle // bytes_each)), plgpu.SwizzleTransform(swizzle)


def _body(
    x: _Ref,
    layer: _Ref,
    *refs: _Ref,
    names: tuple[str, ...],
    make_operand: Callable[[_Ref], Operand],
    spare: _Ref,
    **rest: Any,
) -> None:
    """One block: its loader or one of its computing warpgroups."""
    *planes, out = refs
    named = dict(zip(names, planes, strict=False))
    row_scales = planes[len(names)] if len(planes) > len(names) else None
    block = _Block(
        x=x, layer=layer[0], planes=named, row_scales=row_scales, out=out, operand=make_operand(spare), **rest
    )
    is_loader = lax.axis_index("warpgroup") == block.tiles.warpgroups
    lax.cond(is_loader, functools.partial(_load, block), functools.partial(_compute, block))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Block:
    """What the warpgroups of a block share: operands, the ring between them, and the block's way over the tiles."""

    x: _Ref
    layer: jax.Array
    planes: dict[str, _Ref]
    row_scales: _Ref | None  # [L, N]
    out: _Ref
    x_ring: _Ref  # [stages, tokens, depth]
    rings: dict[str, _Ref]  # [stages, 16-row tiles, ...]: all tiles of the first operands, then all of the second ones
    out_pieces: _Ref  # [warpgroup, out_tokens, 64]
    loaded: _Ref
    released: _Ref
    operand: Operand
    form: str
    tiles: PackedTiles
    epilogue: Epilogue
    shift: int

    @property
    def row_tiles(self) -> int:
        """16-row tiles of one kind of operands in the block's tile."""
        return OPERAND_TILES * self.tiles.warpgroups

    @property
    def all_row_tiles(self) -> int:
        """16-row tiles of the matrix."""
        return int(self.planes["codes"].shape[1])

    @property
    def gated(self) -> bool:
        return self.epilogue == "silu_product"

    @property
    def steps_a_block(self) -> int:
        """Stages that a block of the packing takes."""
        return int(self.planes["codes"].shape[3]) * CHUNK[self.form] // (DEPTH * self.tiles.units)

    @property
    def depth_steps(self) -> int:
        """Stages that a tile takes."""
        return int(self.planes["codes"].shape[2]) * self.steps_a_block

    @property
    def steps(self) -> tuple[int, int]:
        return _steps(self.x.shape[0], TILE_ROWS * self.all_row_tiles, self.tiles)

    def rounds(self) -> jax.Array:
        """How many tiles this block has."""
        blocks: int = lax.axis_size("block")
        count: jax.Array = lax.div(self.steps[0] * self.steps[1] - lax.axis_index("block") + blocks - 1, blocks)
        return count

    def corner(self, round_: jax.Array) -> tuple[jax.Array, jax.Array]:
        """This block's tile in a round, as (tile along T, tile along N)."""
        number = round_ * lax.axis_size("block") + lax.axis_index("block")
        at_t, at_n = plgpu.planar_snake(number, self.steps, 0, self.tiles.walk_width)
        return at_t, at_n

    def first_row_tile(self, at_n: jax.Array, kind: int) -> jax.Array:
        """The first 16-row tile of the matrix of one kind of operands. The second kind are the up rows, or the next."""
        if self.gated:
            return at_n * self.row_tiles + kind * (self.all_row_tiles // 2)
        return (at_n * self.tiles.operands + kind) * self.row_tiles

    def slot(self, step: jax.Array) -> jax.Array:
        """The place of a stage in the ring."""
        at: jax.Array = lax.rem(step, self.tiles.stages)
        return at


def _load(block: _Block) -> None:
    """The loader: all stages of all tiles of the block, each as soon as its place in the ring is free."""
    plgpu.set_max_registers(LOADER_REGISTERS, action="decrease")

    def load_tile(round_: jax.Array, step: jax.Array) -> jax.Array:
        corner = block.corner(round_)
        after: jax.Array = lax.fori_loop(0, block.depth_steps, lambda k, s: _load_stage(block, corner, k, s), step)
        return after

    lax.fori_loop(0, block.rounds(), load_tile, jnp.int32(0))


def _load_stage(block: _Block, corner: tuple[jax.Array, jax.Array], k: jax.Array, step: jax.Array) -> jax.Array:
    """Piece `k` of K of the tile at `corner`, as stage `step`; the next stage's number."""
    tiles, slot = block.tiles, block.slot(step)
    depth = tiles.units * DEPTH
    pl.when(step >= tiles.stages)(lambda: plgpu.barrier_wait(block.released.at[slot]))
    copy = functools.partial(plgpu.copy_gmem_to_smem, barrier=block.loaded.at[slot])
    copy(block.x.at[pl.ds(corner[0] * tiles.tokens, tiles.tokens), pl.ds(k * depth, depth)], block.x_ring.at[slot])
    packed, part = lax.div(k, block.steps_a_block), lax.rem(k, block.steps_a_block)
    for (name, plane), kind in itertools.product(block.planes.items(), range(tiles.operands)):
        at = pl.ds(block.first_row_tile(corner[1], kind), block.row_tiles)
        ring = block.rings[name].at[slot, pl.ds(kind * block.row_tiles, block.row_tiles)]
        if name in _BY_CHUNK:
            chunks = block.rings[name].shape[2]
            copy(plane.at[block.layer, at, packed, pl.ds(part * chunks, chunks)], ring)
        else:
            copy(plane.at[block.layer, at, packed], ring)
    return step + 1


def _compute(block: _Block) -> None:
    """One computing warpgroup: its rows of all tiles of the block."""
    plgpu.set_max_registers(COMPUTE_REGISTERS, action="increase")

    def compute_tile(round_: jax.Array, step: jax.Array) -> jax.Array:
        def accumulate(*sums: _Ref) -> None:
            _multiply(block, sums, step)
            corner = block.corner(round_)
            _store(block, [_scaled(block, s[...], corner[1], kind) for kind, s in enumerate(sums)], corner)

        shape = (64, block.tiles.tokens)
        pl.run_scoped(accumulate, *[plgpu.WGMMAAccumulatorRef(shape, jnp.float32)] * block.tiles.operands)
        after: jax.Array = step + block.depth_steps
        return after

    lax.fori_loop(0, block.rounds(), compute_tile, jnp.int32(0))
    plgpu.wait_smem_to_gmem(0)


def _multiply(block: _Block, sums: tuple[_Ref, ...], first: jax.Array) -> None:
    """All of K of one tile, from stage `first` on, into the accumulators."""
    tiles, chunks = block.tiles, block.planes["codes"].shape[3]

    def multiply(k: jax.Array, _: None) -> None:
        slot = block.slot(first + k)
        plgpu.barrier_wait(block.loaded.at[slot])
        for number, (unit, kind) in enumerate(itertools.product(range(tiles.units), range(tiles.operands))):
            if number > tiles.in_flight:
                plgpu.wgmma_wait(tiles.in_flight)  # or the operands of a whole stage would not fit the registers
            weights = block.operand(block.form, unit, chunks, _tile(block, slot, kind, k))
            plgpu.wgmma(sums[kind], weights, block.x_ring.at[slot, :, pl.ds(DEPTH * unit, DEPTH)].T)
        plgpu.wgmma_wait(0)
        plgpu.barrier_arrive(block.released.at[slot])

    lax.fori_loop(0, block.depth_steps, multiply, None)


def _tile(block: _Block, slot: jax.Array, kind: int, k: jax.Array) -> dict[str, _Ref]:
    """The planes of a warpgroup's four 16-row tiles of one kind; scales from those of the stage's first 64 of K on."""
    at = pl.ds(kind * block.row_tiles + OPERAND_TILES * lax.axis_index("warpgroup"), OPERAND_TILES)
    tile = {name: ring.at[slot, at] for name, ring in block.rings.items()}
    if "scales" in tile and block.steps_a_block > 1:
        width = block.rings["scales"].shape[2]
        chunks = block.tiles.units * DEPTH // CHUNK[block.form]
        skipped = lax.rem(k, block.steps_a_block) * chunks
        tile["scales"] = block.rings["scales"].at[slot, at, pl.ds(skipped, width - chunks * (block.steps_a_block - 1))]
    return tile


def _scaled(block: _Block, sums: jax.Array, at_n: jax.Array, kind: int) -> jax.Array:
    """Sums [64, tokens] of a warpgroup's rows of one kind, with what their weights were left without."""
    if block.form in SUM_SCALE:
        sums = sums * SUM_SCALE[block.form]
    if block.row_scales is None:
        return sums
    first = block.first_row_tile(at_n, kind) * TILE_ROWS + OPERAND_ROWS * lax.axis_index("warpgroup")
    own = block.row_scales.at[block.layer, pl.ds(first, OPERAND_ROWS)]
    scales = plgpu.load(own, (), layout=plgpu.Layout.WGMMA.reduce(1), optimized=False)
    scaled: jax.Array = sums * lax.broadcast_in_dim(scales, sums.shape, (0,))
    return scaled


def _store(block: _Block, sums: list[jax.Array], corner: tuple[jax.Array, jax.Array]) -> None:
    """The epilogue of one warpgroup's sums, piece by piece through shared memory, where they are transposed."""
    tiles, me = block.tiles, lax.axis_index("warpgroup")
    piece = block.out_pieces.at[me]
    for kind, first, value in _pieces(block, sums):
        if block.epilogue == "residual_add" and block.shift:
            value = value * 2.0**block.shift
        value = to_dtype(value, block.out.dtype)
        if value.dtype.itemsize == 4:
            value = plgpu.layout_cast(value, plgpu.Layout.WGMMA_TRANSPOSED)
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
        piece.T[...] = value
        plgpu.commit_smem()
        row = (corner[1] * (1 if block.gated else tiles.operands) + kind) * tiles.warpgroups + me
        tokens = pl.ds(corner[0] * tiles.tokens + first, tiles.out_tokens)
        plgpu.copy_smem_to_gmem(
            piece,
            block.out.at[tokens, pl.ds(row * OPERAND_ROWS, OPERAND_ROWS)],
            reduction_op="add" if block.epilogue == "residual_add" else None,
        )


def _pieces(block: _Block, sums: list[jax.Array]) -> Iterator[tuple[int, int, jax.Array]]:
    """(operand, first token, float32 [64, out_tokens]) of all pieces of a warpgroup's result."""
    for first in range(0, block.tiles.tokens, block.tiles.out_tokens):
        cut = [s[:, first : first + block.tiles.out_tokens] for s in sums]
        if block.gated:
            yield 0, first, silu_product(cut[0], cut[1], block.shift)
        else:
            for kind, value in enumerate(cut):
                yield kind, first, value
