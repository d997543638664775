"""The prefill matmul for Hopper: wgmma fed by TMA, one persistent block a multiprocessor, in Pallas Mosaic GPU.

Three warpgroups a block: two hold the accumulators and never load, the third only loads. The loader runs through all
tiles of its block in one ring of stages, so it is already filling the ring for the next tile while the others store.
Rows beyond T are zeros from the load and are dropped by the store: the hardware's tile copies clip at the array's end.

Invariant: an output element is one chain of 16-deep products in rising K, so its bits depend on its row of x, its row
of w and K alone: not on T, the tiles, the stages or the order of the tiles.
"""

from __future__ import annotations

import functools
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


def _body(
    x: _Ref,
    w: _Ref,
    out: _Ref,
    *,
    x_ring: _Ref,
    w_ring: _Ref,
    out_pieces: _Ref,
    loaded: _Ref,
    released: _Ref,
    tiles: Tiles,
    epilogue: Epilogue,
    shift: int,
) -> None:
    """One block: its loader or one of its two computing warpgroups, through all tiles of the block."""
    depth_steps = x.shape[1] // tiles.depth
    t_steps, n_steps = _steps(x.shape[0], w.shape[0], tiles)
    block, blocks = lax.axis_index("block"), lax.axis_size("block")
    rounds = lax.div(t_steps * n_steps - block + blocks - 1, blocks)

    def corner(round_: jax.Array) -> tuple[jax.Array, jax.Array]:
        """This block's tile in a round, as (tile along T, tile along N)."""
        walk = 0 if tiles.walk == "t" else 1
        at_t, at_n = plgpu.planar_snake(round_ * blocks + block, (t_steps, n_steps), walk, tiles.walk_width)
        if tiles.cluster == "t":
            at_t = at_t * 2 + lax.axis_index("pair")
        elif tiles.cluster == "n":
            at_n = at_n * 2 + lax.axis_index("pair")
        return at_t, at_n

    def load() -> None:
        plgpu.set_max_registers(LOADER_REGISTERS, action="decrease")
        w_parts = _w_parts(w.shape[0], tiles, epilogue)
        step_n = tiles.columns // (2 if epilogue == "silu_product" else 1)

        def load_stage(k: jax.Array, step: jax.Array, at_t: jax.Array, at_n: jax.Array) -> jax.Array:
            slot = lax.rem(step, tiles.stages)
            pl.when(step >= tiles.stages)(lambda: plgpu.barrier_wait(released.at[slot]))
            at_k = pl.ds(k * tiles.depth, tiles.depth)
            copy = functools.partial(plgpu.copy_gmem_to_smem, barrier=loaded.at[slot])
            # Blocks beside each other along N share the rows of x, blocks along T the rows of w.
            copy(
                x.at[pl.ds(at_t * tiles.rows, tiles.rows), at_k],
                x_ring.at[slot],
                collective_axes="pair" if tiles.cluster == "n" else None,
            )
            for first, at, rows in w_parts:
                copy(
                    w.at[pl.ds(at_n * step_n + first, rows), at_k],
                    w_ring.at[slot, pl.ds(at, rows)],
                    collective_axes="pair" if tiles.cluster == "t" else None,
                )
            return step + 1

        def load_tile(round_: jax.Array, step: jax.Array) -> jax.Array:
            at_t, at_n = corner(round_)
            last: jax.Array = lax.fori_loop(0, depth_steps, lambda k, s: load_stage(k, s, at_t, at_n), step)
            return last

        end = lax.fori_loop(0, rounds, load_tile, jnp.int32(0))
        # A block may not leave while its neighbour still writes into it or arrives at its barriers.
        first = lax.max(end - tiles.stages, 0)
        lax.fori_loop(first, end, lambda s, _: plgpu.barrier_wait(released.at[lax.rem(s, tiles.stages)]), None)

    def compute() -> None:
        plgpu.set_max_registers(COMPUTE_REGISTERS, action="increase")
        me = lax.axis_index("warpgroup")
        rows, columns = tiles.warpgroup_rows, tiles.warpgroup_columns
        my_rows = pl.ds(me * rows, rows) if tiles.shared == "t" else pl.ds(0, rows)
        my_columns = pl.ds(me * columns, columns) if tiles.shared == "n" else pl.ds(0, columns)
        out_rows, out_columns = _out_shape(tiles, epilogue)

        def compute_tile(round_: jax.Array, step: jax.Array) -> jax.Array:
            def accumulate(sums: _Ref) -> None:
                def multiply(step: jax.Array) -> None:
                    slot = lax.rem(step, tiles.stages)
                    plgpu.barrier_wait(loaded.at[slot])
                    plgpu.wgmma(sums, x_ring.at[slot, my_rows], w_ring.at[slot, my_columns].T)
                    plgpu.wgmma_wait(tiles.in_flight)

                def release(step: jax.Array) -> None:
                    plgpu.barrier_arrive(released.at[lax.rem(step, tiles.stages)])

                def multiply_and_release(k: jax.Array, _: None) -> None:
                    multiply(step + k)
                    release(step + k - tiles.in_flight)

                if tiles.in_flight:
                    multiply(step)
                lax.fori_loop(tiles.in_flight, depth_steps, multiply_and_release, None)
                plgpu.wgmma_wait(0)
                if tiles.in_flight:
                    release(step + depth_steps - 1)
                store(sums[...])

            def store(sums: jax.Array) -> None:
                at_t, at_n = corner(round_)
                first_t = at_t * tiles.rows + (me * out_rows if tiles.shared == "t" else 0)
                tile_columns = out_columns * (2 if tiles.shared == "n" else 1)
                first_n = at_n * tile_columns + (me * out_columns if tiles.shared == "n" else 0)
                places = [
                    (i, j) for i in range(0, out_rows, tiles.out_rows) for j in range(0, out_columns, tiles.out_columns)
                ]
                for number, (i, j) in enumerate(places):
                    slot = number % out_pieces.shape[1]
                    piece = sums[i : i + tiles.out_rows, j : j + tiles.out_columns]
                    if epilogue == "silu_product":
                        up = sums[i : i + tiles.out_rows, out_columns + j : out_columns + j + tiles.out_columns]
                        piece = silu_product(piece, up, shift)
                    elif epilogue == "residual_add" and shift:
                        piece = piece * 2.0**shift
                    plgpu.wait_smem_to_gmem(out_pieces.shape[1] - 1, wait_read_only=True)
                    out_pieces[me, slot] = to_dtype(piece, out.dtype)
                    plgpu.commit_smem()
                    plgpu.copy_smem_to_gmem(
                        out_pieces.at[me, slot],
                        out.at[pl.ds(first_t + i, tiles.out_rows), pl.ds(first_n + j, tiles.out_columns)],
                        reduction_op="add" if epilogue == "residual_add" else None,
                    )

            pl.run_scoped(accumulate, plgpu.WGMMAAccumulatorRef((rows, columns), jnp.float32))
            after: jax.Array = step + depth_steps
            return after

        lax.fori_loop(0, rounds, compute_tile, jnp.int32(0))
        plgpu.wait_smem_to_gmem(0)

    lax.cond(lax.axis_index("warpgroup") == COMPUTE_WARPGROUPS, load, compute)
