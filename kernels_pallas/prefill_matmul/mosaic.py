"""The prefill matmul for Hopper: wgmma fed by TMA, one persistent block a multiprocessor, in Pallas Mosaic GPU.

Three warpgroups a block: two hold the accumulators and never load, the third only loads. The loader runs through all
tiles of its block in one ring of stages, so it is already filling the ring for the next tile while the others store.
Rows beyond T are zeros from the load and are dropped by the store: the hardware's tile copies clip at the array's end.

Invariant: an output element is one chain of 16-deep products in rising K, so its bits depend on its row of x, its row
of w and K alone: not on T, the tiles, the stages or the order of the tiles.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.typing import DTypeLike

from .epilogue import Epilogue, silu_product, to_dtype
from .tuning import Axis, Tiles

_Ref: TypeAlias = Any  # a place in some memory as Pallas hands it to a body; its type has no public name

COMPUTE_WARPGROUPS = 2
LOADER_REGISTERS = 40
COMPUTE_REGISTERS = 232  # with the loader's: 2 * 232 + 40 of the 512 that four warpgroups' threads share
MULTIPROCESSORS = 132  # of an H200; a grid of another size is right as well, only slower


def matmul(
    x: jax.Array,
    w: jax.Array,
    *,
    epilogue: Epilogue,
    residual: jax.Array | None,
    out_dtype: DTypeLike,
    shift: int,
    tiles: Tiles,
    interpret: object = None,
) -> jax.Array:
    """The meaning is `reference.matmul`'s. x [T, K] and w [N, K] of one 16-bit type.

    Raises NotImplementedError for an N, K or T that the tiles cannot cut.
    """
    t, k = x.shape
    n, _ = w.shape
    _check(t, n, k, tiles, epilogue)
    width = n // 2 if epilogue == "silu_product" else n
    kernel = functools.partial(
        plgpu.kernel,
        functools.partial(_body, tiles=tiles, epilogue=epilogue, shift=shift),
        scratch_types=_scratch(x.dtype, out_dtype, tiles, epilogue),
        grid=(min(MULTIPROCESSORS // _pair(tiles), _steps(t, n, tiles)[0] * _steps(t, n, tiles)[1]),),
        grid_names=("block",),
        cluster=(_pair(tiles),),
        cluster_names=("pair",),
        num_threads=COMPUTE_WARPGROUPS + 1,
        thread_name="warpgroup",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        interpret=interpret,
    )
    result: jax.Array
    if residual is None:
        result = kernel(out_type=jax.ShapeDtypeStruct((t, width), out_dtype))(x, w)
        return result
    stream = jax.new_ref(residual)  # an operand that is a reference is the kernel's to change: in place, no second copy
    kernel(out_type=())(x, w, stream)
    result = jax.freeze(stream)
    return result


def _pair(tiles: Tiles, axis: Axis | None = None) -> int:
    """Blocks of one cluster: along `axis`, or in all."""
    return 2 if tiles.cluster is not None and axis in (None, tiles.cluster) else 1


def _steps(t: int, n: int, tiles: Tiles) -> tuple[int, int]:
    """Tiles of a whole cluster along T and along N."""
    return pl.cdiv(t, tiles.rows * _pair(tiles, "t")), n // (tiles.columns * _pair(tiles, "n"))


def _check(t: int, n: int, k: int, tiles: Tiles, epilogue: Epilogue) -> None:
    if t % 64 or n % (tiles.columns * _pair(tiles, "n")) or k % tiles.depth:
        raise NotImplementedError(f"T={t}, N={n}, K={k} cannot be cut by {tiles}; T must be a multiple of 64")


def _tiling(columns: int, dtype: DTypeLike) -> tuple[Any, ...]:
    """The layout of a tile in shared memory that wgmma reads and that keeps stores free of bank conflicts."""
    bytes_each = jnp.dtype(dtype).itemsize
    swizzle = plgpu.find_swizzle(columns * bytes_each * 8)
    return plgpu.TilingTransform((8, swizzle // bytes_each)), plgpu.SwizzleTransform(swizzle)


def _out_shape(tiles: Tiles, epilogue: Epilogue) -> tuple[int, int]:
    """A warpgroup's part of the output: half as wide as its accumulator where gate and up become one."""
    return tiles.warpgroup_rows, tiles.warpgroup_columns // (2 if epilogue == "silu_product" else 1)


def _w_parts(n: int, tiles: Tiles, epilogue: Epilogue) -> list[tuple[int, int, int]]:
    """The pieces of a tile of w: (row of w from the tile's first one, row in the tile, rows).

    For the SiLU product a warpgroup finds its gate rows and then the up rows of the same channels side by side.
    """
    if epilogue != "silu_product":
        return [(0, 0, tiles.columns)]
    owners = COMPUTE_WARPGROUPS if tiles.shared == "n" else 1
    rows = tiles.columns // (2 * owners)
    return [
        (owner * rows + kind * n // 2, (2 * owner + kind) * rows, rows) for owner in range(owners) for kind in range(2)
    ]


def _scratch(dtype: DTypeLike, out_dtype: DTypeLike, tiles: Tiles, epilogue: Epilogue) -> dict[str, Any]:
    ring = functools.partial(plgpu.SMEM, dtype=dtype, transforms=_tiling(tiles.depth, dtype))
    rows, columns = _out_shape(tiles, epilogue)
    pieces = (rows // tiles.out_rows) * (columns // tiles.out_columns)
    return {
        "x_ring": ring((tiles.stages, tiles.rows, tiles.depth)),
        "w_ring": ring((tiles.stages, tiles.columns, tiles.depth)),
        "out_pieces": plgpu.SMEM(
            (COMPUTE_WARPGROUPS, min(tiles.out_slots, pieces), tiles.out_rows, tiles.out_columns),
            out_dtype,
            transforms=_tiling(tiles.out_columns, out_dtype),
        ),
        "loaded": plgpu.Barrier(num_arrivals=1 + len(_w_parts(0, tiles, epilogue)), num_barriers=tiles.stages),
        "released": plgpu.ClusterBarrier(
            collective_axes=("pair",), num_arrivals=COMPUTE_WARPGROUPS, num_barriers=tiles.stages
        )
        if tiles.cluster
        else plgpu.Barrier(num_arrivals=COMPUTE_WARPGROUPS, num_barriers=tiles.stages),
    }


def _body(x: _Ref, w: _Ref, out: _Ref, *, tiles: Tiles, epilogue: Epilogue, shift: int, **scratch: _Ref) -> None:
    """One block: its loader or one of its two computing warpgroups."""
    block = _Block(x=x, w=w, out=out, tiles=tiles, epilogue=epilogue, shift=shift, **scratch)
    is_loader = lax.axis_index("warpgroup") == COMPUTE_WARPGROUPS
    lax.cond(is_loader, functools.partial(_load, block), functools.partial(_compute, block))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Block:
    """What the warpgroups of a block share: operands, the ring between them, and the block's way over the tiles."""

    x: _Ref
    w: _Ref
    out: _Ref
    x_ring: _Ref  # [stages, rows, depth]
    w_ring: _Ref  # [stages, columns, depth]
    out_pieces: _Ref  # [warpgroup, slot, out_rows, out_columns]
    loaded: _Ref
    released: _Ref
    tiles: Tiles
    epilogue: Epilogue
    shift: int

    @property
    def depth_steps(self) -> int:
        """Stages that a tile takes."""
        return int(self.x.shape[1]) // self.tiles.depth

    @property
    def steps(self) -> tuple[int, int]:
        return _steps(self.x.shape[0], self.w.shape[0], self.tiles)

    def rounds(self) -> jax.Array:
        """How many tiles this block has."""
        blocks: int = lax.axis_size("block")
        count: jax.Array = lax.div(math.prod(self.steps) - lax.axis_index("block") + blocks - 1, blocks)
        return count

    def corner(self, round_: jax.Array) -> tuple[jax.Array, jax.Array]:
        """This block's tile in a round, as (tile along T, tile along N)."""
        tiles, number = self.tiles, round_ * lax.axis_size("block") + lax.axis_index("block")
        at_t, at_n = plgpu.planar_snake(number, self.steps, 0 if tiles.walk == "t" else 1, tiles.walk_width)
        if tiles.cluster == "t":
            at_t = at_t * 2 + lax.axis_index("pair")
        elif tiles.cluster == "n":
            at_n = at_n * 2 + lax.axis_index("pair")
        return at_t, at_n

    def slot(self, step: jax.Array) -> jax.Array:
        """The place of a stage in the ring."""
        at: jax.Array = lax.rem(step, self.tiles.stages)
        return at


def _load(block: _Block) -> None:
    """The loader: all stages of all tiles of the block, each as soon as its place in the ring is free."""
    plgpu.set_max_registers(LOADER_REGISTERS, action="decrease")

    def load_tile(round_: jax.Array, step: jax.Array) -> jax.Array:
        corner = block.corner(round_)
        last: jax.Array = lax.fori_loop(0, block.depth_steps, lambda k, s: _load_stage(block, corner, k, s), step)
        return last

    end = lax.fori_loop(0, block.rounds(), load_tile, jnp.int32(0))
    # A block may not leave while its neighbour still writes into it or arrives at its barriers.
    first = lax.max(end - block.tiles.stages, 0)
    lax.fori_loop(first, end, lambda s, _: plgpu.barrier_wait(block.released.at[block.slot(s)]), None)


def _load_stage(block: _Block, corner: tuple[jax.Array, jax.Array], k: jax.Array, step: jax.Array) -> jax.Array:
    """Piece `k` of the tile at `corner`, as stage `step` of the block; the next stage's number."""
    tiles, slot = block.tiles, block.slot(step)
    pl.when(step >= tiles.stages)(lambda: plgpu.barrier_wait(block.released.at[slot]))
    at_k = pl.ds(k * tiles.depth, tiles.depth)
    copy = functools.partial(plgpu.copy_gmem_to_smem, barrier=block.loaded.at[slot])
    # Blocks beside each other along N share the rows of x, blocks along T the rows of w.
    copy(
        block.x.at[pl.ds(corner[0] * tiles.rows, tiles.rows), at_k],
        block.x_ring.at[slot],
        collective_axes="pair" if tiles.cluster == "n" else None,
    )
    step_n = tiles.columns // (2 if block.epilogue == "silu_product" else 1)
    for first, at, rows in _w_parts(block.w.shape[0], tiles, block.epilogue):
        copy(
            block.w.at[pl.ds(corner[1] * step_n + first, rows), at_k],
            block.w_ring.at[slot, pl.ds(at, rows)],
            collective_axes="pair" if tiles.cluster == "t" else None,
        )
    return step + 1


def _compute(block: _Block) -> None:
    """One computing warpgroup: its part of all tiles of the block."""
    plgpu.set_max_registers(COMPUTE_REGISTERS, action="increase")
    shape = (block.tiles.warpgroup_rows, block.tiles.warpgroup_columns)

    def compute_tile(round_: jax.Array, step: jax.Array) -> jax.Array:
        def accumulate(sums: _Ref) -> None:
            _multiply(block, sums, step)
            _store(block, sums[...], block.corner(round_))

        pl.run_scoped(accumulate, plgpu.WGMMAAccumulatorRef(shape, jnp.float32))
        return step + block.depth_steps

    lax.fori_loop(0, block.rounds(), compute_tile, jnp.int32(0))
    plgpu.wait_smem_to_gmem(0)


def _multiply(block: _Block, sums: _Ref, first: jax.Array) -> None:
    """All of K of one tile, from stage `first` on, into the accumulator."""
    tiles, me = block.tiles, lax.axis_index("warpgroup")
    rows, columns = tiles.warpgroup_rows, tiles.warpgroup_columns
    my_rows = pl.ds(me * rows, rows) if tiles.shared == "t" else pl.ds(0, rows)
    my_columns = pl.ds(me * columns, columns) if tiles.shared == "n" else pl.ds(0, columns)

    def multiply(step: jax.Array) -> None:
        slot = block.slot(step)
        plgpu.barrier_wait(block.loaded.at[slot])
        plgpu.wgmma(sums, block.x_ring.at[slot, my_rows], block.w_ring.at[slot, my_columns].T)
        plgpu.wgmma_wait(tiles.in_flight)

    def release(step: jax.Array) -> None:
        plgpu.barrier_arrive(block.released.at[block.slot(step)])

    def multiply_and_release(k: jax.Array, _: None) -> None:
        multiply(first + k)
        release(first + k - tiles.in_flight)

    if tiles.in_flight:
        multiply(first)
    lax.fori_loop(tiles.in_flight, block.depth_steps, multiply_and_release, None)
    plgpu.wgmma_wait(0)
    if tiles.in_flight:
        release(first + block.depth_steps - 1)


def _store(block: _Block, sums: jax.Array, corner: tuple[jax.Array, jax.Array]) -> None:
    """The epilogue of one warpgroup's sums of the tile at `corner`, piece by piece through shared memory."""
    tiles, pieces, me = block.tiles, block.out_pieces, lax.axis_index("warpgroup")
    rows, columns = _out_shape(tiles, block.epilogue)
    first_t = corner[0] * tiles.rows + (me * rows if tiles.shared == "t" else 0)
    first_n = corner[1] * columns * (2 if tiles.shared == "n" else 1) + (me * columns if tiles.shared == "n" else 0)
    places = itertools.product(range(0, rows, tiles.out_rows), range(0, columns, tiles.out_columns))
    for number, (i, j) in enumerate(places):
        slot = number % pieces.shape[1]
        piece = sums[i : i + tiles.out_rows, j : j + tiles.out_columns]
        if block.epilogue == "silu_product":
            up = sums[i : i + tiles.out_rows, columns + j : columns + j + tiles.out_columns]
            piece = silu_product(piece, up, block.shift)
        elif block.epilogue == "residual_add" and block.shift:
            piece = piece * 2.0**block.shift
        plgpu.wait_smem_to_gmem(pieces.shape[1] - 1, wait_read_only=True)
        pieces[me, slot] = to_dtype(piece, block.out.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(
            pieces.at[me, slot],
            block.out.at[pl.ds(first_t + i, tiles.out_rows), pl.ds(first_n + j, tiles.out_columns)],
            reduction_op="add" if block.epilogue == "residual_add" else None,
        )
