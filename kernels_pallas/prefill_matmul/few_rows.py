"""The product of up to 128 rows straight from packed weights, for Hopper: no unpacked copy in memory.

Few rows are bound by reading, and an unpacked copy is written and read again at several times the packed bytes. Here
the weights are the left operand of the wgmma: computing warpgroups turn packed blocks from shared memory into registers
(operand_ptx.py) and the rows of x are the right one, so the sums come out transposed, [N, T].

It has not run on a device yet, so nothing chooses it: `benchmarks/kernels/prefill_few_rows.py` says whether the
invariant holds there, and how fast it is. Interpretation cannot have registers as an operand, so a test gives an
`Operand` that goes through shared memory.

Invariant: an output element is the sum that mosaic.py gives, bit for bit: the same 16-bit weights, the same 16-deep
products in rising K in one float32 accumulator.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import utils as mgpu_utils
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.typing import DTypeLike
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, llvm

from kernels_pallas.arrays import CHUNK, PackedMatrix

from .epilogue import silu_product, to_dtype
from .operand_ptx import DEPTH, OUTPUTS, operand_text, supported
from .tuning import MULTIPROCESSORS, SHARED_BYTES

_Ref: TypeAlias = Any  # a place in some memory as Pallas hands it to a body; its type has no public name

Operand: TypeAlias = Callable[[str, int, int, dict[str, _Ref], dict[str, _Ref]], Any]
"""From a format, a 64 of K and the chunks of a block, planes [4, ...] of four tiles, and spare memory: [64, 64]."""

TILE_ROWS = 16
OPERAND_TILES = 4  # 64 rows of one wgmma
MAX_ROWS = 128
OUT_COLUMNS = 64
LOADER_REGISTERS = 40
COMPUTE_REGISTERS = 232


def few_rows(
    x: jax.Array,
    matrix: PackedMatrix,
    layer: jax.Array,
    *,
    gated: bool,
    out_dtype: DTypeLike,
    shift: int,
    warpgroups: int | None = None,
    operand: Operand | None = None,
    spare: dict[str, Any] | None = None,
    interpret: object = None,
) -> jax.Array:
    """(x @ matrix[layer].T).T, float32 [N, T], or its SiLU product in `out_dtype`, [N/2, T].

    x [T, K], T of 64 or 128, in the 16-bit type of the format; layer int32 [1]. warpgroups: how many of a block
    compute, 1 or 2. operand: what makes a left operand, with `spare` shared memory by name for it. What suits the shape
    and the registers of operand_ptx.py where they are not given.
    Raises NotImplementedError for what it cannot cut or read.
    """
    t, k = x.shape
    planes = _planes(matrix)
    depth = CHUNK[matrix.format] * matrix.codes.shape[3]
    if t not in (64, MAX_ROWS) or depth % DEPTH or not supported(matrix.format):
        raise NotImplementedError(f"T={t}, {matrix.format} [{matrix.n}, {k}] is no shape for few rows")
    out_dtype = jnp.dtype(out_dtype if gated else jnp.float32)
    allowed = (2, 1) if warpgroups is None else (warpgroups,)
    warpgroups, rows, stages = _cut(allowed, t, matrix.n, depth, planes, gated, out_dtype)
    out = jax.ShapeDtypeStruct((matrix.n // (1 + gated), t), out_dtype)
    rings = {name: (rows // TILE_ROWS, *plane.shape[3:]) for name, plane in planes.items()}
    body = functools.partial(
        _body,
        names=tuple(planes),
        operand=operand or _operand,
        form=matrix.format,
        gated=gated,
        shift=shift,
        warpgroups=warpgroups,
        stages=stages,
    )
    result: jax.Array = plgpu.kernel(
        body,
        out_type=out,
        scratch_types={
            "x_ring": plgpu.SMEM((stages, t, depth), x.dtype, transforms=_tiling(depth, x.dtype)),
            "rings": {name: plgpu.SMEM((stages, *rings[name]), plane.dtype) for name, plane in planes.items()},
            "out_pieces": plgpu.SMEM(
                (warpgroups, 64, OUT_COLUMNS), out.dtype, transforms=_tiling(OUT_COLUMNS, out.dtype)
            ),
            "loaded": plgpu.Barrier(num_arrivals=1 + len(planes) * (1 + gated), num_barriers=stages),
            "released": plgpu.Barrier(num_arrivals=warpgroups, num_barriers=stages),
            "spare": spare or {},
        },
        grid=(min(MULTIPROCESSORS, matrix.n // rows),),
        grid_names=("block",),
        num_threads=warpgroups + 1,
        thread_name="warpgroup",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        interpret=interpret,
    )(x, layer, *planes.values())
    return result


def _tiling(columns: int, dtype: DTypeLike) -> tuple[Any, ...]:
    bytes_each = jnp.dtype(dtype).itemsize
    swizzle = plgpu.find_swizzle(columns * bytes_each * 8)
    return plgpu.TilingTransform((8, swizzle // bytes_each)), plgpu.SwizzleTransform(swizzle)


def _cut(
    allowed: tuple[int, ...],
    t: int,
    n: int,
    depth: int,
    planes: dict[str, jax.Array],
    gated: bool,
    out_dtype: np.dtype[Any],
) -> tuple[int, int, int]:
    """Computing warpgroups of a block, rows of the matrix of its tiles, and stages that shared memory holds."""
    for warpgroups in allowed:
        rows = 64 * warpgroups * (1 + gated)
        packed = sum(plane.dtype.itemsize * math.prod(plane.shape[3:]) for plane in planes.values())
        stage = t * depth * 2 + rows // TILE_ROWS * packed
        stages = min(8, (SHARED_BYTES - warpgroups * 64 * OUT_COLUMNS * out_dtype.itemsize) // stage)
        # One warpgroup where two would leave half of the multiprocessors idle.
        wide = warpgroups == allowed[-1] or n // rows >= MULTIPROCESSORS // 2
        if n % rows == 0 and stages >= 2 and wide:
            return warpgroups, rows, stages
    raise NotImplementedError(f"no tiles of {n} rows fit shared memory beside T={t}")


def _planes(matrix: PackedMatrix) -> dict[str, jax.Array]:
    """The planes that the format has, each [L, N/16, blocks of K or 1, ...]."""
    row_scales = matrix.row_scales
    if row_scales is not None:
        row_scales = row_scales.reshape(matrix.layers, matrix.n // TILE_ROWS, 1, TILE_ROWS)
    named = {"codes": matrix.codes, "high": matrix.high, "scales": matrix.scales, "row_scales": row_scales}
    return {name: plane for name, plane in named.items() if plane is not None}


def _body(x: _Ref, layer: _Ref, *refs: _Ref, names: tuple[str, ...], **rest: Any) -> None:
    """One block: its loader or one of its computing warpgroups."""
    *planes, out = refs
    block = _Block(x=x, layer=layer[0], planes=dict(zip(names, planes, strict=True)), out=out, **rest)
    is_loader = lax.axis_index("warpgroup") == block.warpgroups
    lax.cond(is_loader, functools.partial(_load, block), functools.partial(_compute, block))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Block:
    """What the warpgroups of a block share: operands, the ring between them, and the block's way over the tiles."""

    x: _Ref
    layer: jax.Array
    planes: dict[str, _Ref]
    out: _Ref
    x_ring: _Ref  # [stages, T, depth]
    rings: dict[str, _Ref]  # [stages, 16-row tiles, ...]: all gate tiles, then all up tiles
    out_pieces: _Ref  # [warpgroup, 64, OUT_COLUMNS]
    loaded: _Ref
    released: _Ref
    spare: dict[str, _Ref]
    operand: Operand
    form: str
    gated: bool
    shift: int
    warpgroups: int
    stages: int

    @property
    def kinds(self) -> int:
        """2 where there are gate rows and up rows."""
        return 1 + self.gated

    @property
    def tiles(self) -> int:
        """16-row tiles of one kind in the block's tile."""
        return OPERAND_TILES * self.warpgroups

    @property
    def all_tiles(self) -> int:
        """16-row tiles of the matrix."""
        return int(self.planes["codes"].shape[1])

    @property
    def depth_steps(self) -> int:
        """Stages that a tile takes."""
        return int(self.planes["codes"].shape[2])

    def rounds(self) -> jax.Array:
        """How many tiles this block has."""
        blocks: int = lax.axis_size("block")
        tiles = self.all_tiles // (self.tiles * self.kinds)
        count: jax.Array = lax.div(tiles - lax.axis_index("block") + blocks - 1, blocks)
        return count

    def tile(self, round_: jax.Array) -> jax.Array:
        """This block's tile in a round."""
        number: jax.Array = round_ * lax.axis_size("block") + lax.axis_index("block")
        return number


def _load(block: _Block) -> None:
    """The loader: all stages of all tiles of the block, each as soon as its place in the ring is free."""
    plgpu.set_max_registers(LOADER_REGISTERS, action="decrease")

    def load_tile(round_: jax.Array, step: jax.Array) -> jax.Array:
        tile = block.tile(round_)
        after: jax.Array = lax.fori_loop(0, block.depth_steps, lambda k, s: _load_stage(block, tile, k, s), step)
        return after

    lax.fori_loop(0, block.rounds(), load_tile, jnp.int32(0))


def _load_stage(block: _Block, tile: jax.Array, k: jax.Array, step: jax.Array) -> jax.Array:
    """Block `k` of K of a tile, as stage `step`; the next stage's number."""
    slot, depth = lax.rem(step, block.stages), block.x_ring.shape[2]
    pl.when(step >= block.stages)(lambda: plgpu.barrier_wait(block.released.at[slot]))
    plgpu.copy_gmem_to_smem(block.x.at[:, pl.ds(k * depth, depth)], block.x_ring.at[slot], block.loaded.at[slot])
    for (name, plane), kind in itertools.product(block.planes.items(), range(block.kinds)):
        at = pl.ds(tile * block.tiles + kind * (block.all_tiles // 2), block.tiles)
        plgpu.copy_gmem_to_smem(
            plane.at[block.layer, at, 0 if name == "row_scales" else k],
            block.rings[name].at[slot, pl.ds(kind * block.tiles, block.tiles)],
            block.loaded.at[slot],
        )
    return step + 1


def _compute(block: _Block) -> None:
    """One computing warpgroup: its 64 rows of each kind of all tiles of the block."""
    plgpu.set_max_registers(COMPUTE_REGISTERS, action="increase")

    def compute_tile(round_: jax.Array, step: jax.Array) -> jax.Array:
        def accumulate(*sums: _Ref) -> None:
            _multiply(block, sums, step)
            _store(block, [s[...] for s in sums], block.tile(round_))

        pl.run_scoped(accumulate, *[plgpu.WGMMAAccumulatorRef((64, block.x.shape[0]), jnp.float32)] * block.kinds)
        after: jax.Array = step + block.depth_steps
        return after

    lax.fori_loop(0, block.rounds(), compute_tile, jnp.int32(0))
    plgpu.wait_smem_to_gmem(0)


def _multiply(block: _Block, sums: tuple[_Ref, ...], first: jax.Array) -> None:
    """All of K of one tile, from stage `first` on, into the accumulators."""
    chunks, depth = block.planes["codes"].shape[3], block.x_ring.shape[2]
    crowded = block.gated and block.x.shape[0] == MAX_ROWS

    def multiply(k: jax.Array, _: None) -> None:
        slot = lax.rem(first + k, block.stages)
        plgpu.barrier_wait(block.loaded.at[slot])
        for unit in range(depth // DEPTH):
            if crowded and unit:
                plgpu.wgmma_wait(block.kinds)  # or the operands of all units would not fit the registers
            for kind in range(block.kinds):
                at = pl.ds(kind * block.tiles + OPERAND_TILES * lax.axis_index("warpgroup"), OPERAND_TILES)
                tile = {name: ring.at[slot, at] for name, ring in block.rings.items()}
                weights = block.operand(block.form, unit, chunks, tile, block.spare)
                plgpu.wgmma(sums[kind], weights, block.x_ring.at[slot, :, pl.ds(DEPTH * unit, DEPTH)].T)
        plgpu.wgmma_wait(0)
        plgpu.barrier_arrive(block.released.at[slot])

    lax.fori_loop(0, block.depth_steps, multiply, None)


def _store(block: _Block, sums: list[jax.Array], tile: jax.Array) -> None:
    """The epilogue of one warpgroup's sums, piece by piece through shared memory."""
    me = lax.axis_index("warpgroup")
    first = (tile * block.warpgroups + me) * 64
    for column in range(0, block.x.shape[0], OUT_COLUMNS):
        pieces = [s[:, column : column + OUT_COLUMNS] for s in sums]
        piece = silu_product(pieces[0], pieces[1], block.shift) if block.gated else pieces[0]
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
        block.out_pieces[me] = to_dtype(piece, block.out.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(block.out_pieces.at[me], block.out.at[pl.ds(first, 64), pl.ds(column, OUT_COLUMNS)])


def _operand(form: str, unit: int, chunks: int, planes: dict[str, _Ref], spare: dict[str, _Ref]) -> jax.Array:
    """64 rows by 64 of K in the registers of a warpgroup, from the planes [4, ...] of its four packed tiles."""
    dtype = jnp.bfloat16 if form == "bf16" else jnp.float16
    names = tuple(planes)
    # Bytes of a tile's plane, and from one of a tile's eight rows of lanes to the next.
    strides = {
        "codes": (512 * chunks, 64),
        "high": (128 * chunks * (2 if form == "q6_g64" else 1), 32 if form == "q6_g64" else 16),
        "scales": (64 * chunks, 8 * chunks) if form == "nvfp4" else (32 * chunks, 4 * chunks),
        "row_scales": (64, 4),
    }

    def unpack(_: object, *refs: Any) -> mgpu.FragmentedArray:
        i32 = ir.IntegerType.get_signless(32)
        number = functools.partial(mgpu_utils.c, ty=i32)
        thread = mgpu_utils.thread_idx()
        lane, warp = arith.andi(thread, number(31)), arith.andi(arith.shrui(thread, number(5)), number(3))
        lane_row, lane_column = arith.shrui(lane, number(2)), arith.andi(lane, number(3))
        addresses = {}
        for name, ref in zip(names, refs, strict=True):
            of_tile, of_row = strides[name]
            inside = arith.addi(arith.muli(warp, number(of_tile)), arith.muli(lane_row, number(of_row)))
            addresses[name] = arith.addi(llvm.ptrtoint(i32, mgpu_utils.memref_ptr(ref)), inside)
        inputs = [addresses["codes"], lane_column]
        inputs += [addresses.get(name, number(0)) for name in ("high", "scales", "row_scales")]
        words = llvm.inline_asm(
            llvm.StructType.get_literal([i32] * OUTPUTS),
            inputs,
            operand_text(form, unit, chunks),
            ",".join(["=r"] * OUTPUTS + ["r"] * len(inputs)),
            asm_dialect=0,
            has_side_effects=True,
        )
        pair = ir.VectorType.get((2,), mgpu_utils.dtype_to_ir_type(dtype))
        assert isinstance(words, ir.Value)
        registers = [mgpu_utils.bitcast(llvm.extractvalue(i32, words, [at]), pair) for at in range(OUTPUTS)]
        layout = mgpu.WGMMA_LAYOUT
        shaped = np.array(registers, dtype=object).reshape(layout.registers_shape((64, DEPTH)))
        return mgpu.FragmentedArray(_registers=shaped, _layout=layout, _is_signed=None)

    inlined = plgpu.inline_mgpu(
        arg_types=tuple(plgpu.RefType() for _ in names),
        return_type=plgpu.ShapeDtypeStruct((64, DEPTH), dtype, layout=plgpu.Layout.WGMMA),
    )
    weights: jax.Array = inlined(unpack)(*planes.values())
    return weights
