"""The kernel: weights packed in fragment order, unpacked in registers and multiplied by `mma` in inline asm (ptx.py).

A program owns `tiles` tiles of 16 rows (or pairs of gate and up tiles); its warps divide K by blocks and are summed in
a fixed order at the end. Every lane reads 16 bytes of weights and 16 bytes of x at a time, from natural rows; rows past
M repeat the last one, so M changes no instruction. The norm's factor is summed in the shadow of the first loads. Two
ways for weights: into registers, or through a ring in shared memory (`Config.ring`). The static facts, index tensors
and loads are in lanes.py, what becomes of sums in epilogue.py. Knows nothing of formats beyond their planes. Invariant:
what a row gives depends on that row, the matrix and the `Config` only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt
from jax.typing import DTypeLike

from kernels_pallas import overlap
from kernels_pallas.ahead import ask, operands_of, shares_of
from kernels_pallas.arrays import Activation, Ahead, PackedMatrix
from kernels_pallas.blocks import whole
from kernels_pallas.packing import FORMATS
from kernels_pallas.quant_matmul.epilogue import Epilogue, read_tiles
from kernels_pallas.quant_matmul.lanes import Job, Lanes, Ref, load_weights, load_x, multiply_block
from kernels_pallas.quant_matmul.ring import MAX_BYTES, Inputs, Ring, open_ring
from kernels_pallas.quant_matmul.tuning import Config, config_for


def _accumulate(job: Job, lanes: Lanes, refs: dict[str, Ref], layer: Any, item: Any, shadow: Callable[[], Any]) -> Any:
    """([tile][half] sums [warps, 128], what `shadow` gives): `shadow` runs while the first loads are under way."""
    config, steps = job.config, job.steps
    tiles = read_tiles(job, item)

    def load(step: Any) -> Any:
        return [load_weights(job, lanes, refs, (layer, tile), step) for tile in tiles]

    def hold() -> None:
        if config.pin:
            job.hold()

    def compute(step: Any, loaded: Any, accs: Any) -> Any:
        xs = load_x(job, lanes, refs["x"], step * config.warps + lanes.warp)
        return tuple(
            tuple(multiply_block(job, loaded[t], xs[half], accs[t][half]) for half in range(job.halves))
            for t in range(job.tiles)
        )

    zero = jnp.zeros((config.warps, 128), jnp.float32)
    accs = tuple(tuple(zero for _ in range(job.halves)) for _ in range(job.tiles))
    unroll = min(config.unroll, steps)
    loaded = [load(u) for u in range(unroll)]
    hold()
    found = shadow()
    whole = (steps - unroll) // unroll  # groups after the first

    for u, data in enumerate(loaded):
        accs = compute(u, data, accs)

    def group(i: Any, accs: Any) -> Any:
        first = i * unroll
        data = [load(first + u) for u in range(unroll)]
        hold()
        for u in range(unroll):
            accs = compute(first + u, data[u], accs)
        return accs

    if whole:
        accs = lax.fori_loop(1, whole + 1, group, accs)
    for step in range((whole + 1) * unroll, steps):
        accs = compute(step, load(step), accs)
    return accs, found


def _kernel(*all_refs: Ref, job: Job, names: tuple[str, ...]) -> None:
    refs = dict(zip(names, all_refs, strict=True))
    layer = refs["layer"][0]
    pid = pl.program_id(0)
    if job.config.release:
        overlap.release_next(refs["codes"])
    ending = Epilogue(job=job, refs=refs, layer=layer)
    if job.config.ring:
        ring = Stream.rings(job, job.config.ring)
        base = open_ring(refs["codes"], ring.size_bytes)
        stream = Stream(job=job, refs=refs, layer=layer, pid=pid, ring=ring, base=base)
        stream.fill()
        stream.walk(ending)
        ask(job.ahead, refs, pid)
        return
    accs, (factors, early) = _accumulate(
        job, Lanes(job), refs, layer, pid, lambda: (ending.factors(), ending.early(pid))
    )
    ask(job.ahead, refs, pid)
    ending.end(pid, accs, factors, early)


@attrs.frozen(kw_only=True)
class Stream:
    """A program's walk over its items with a ring of blocks that runs ahead across their borders."""

    job: Job
    refs: dict[str, Ref]
    layer: Any
    pid: Any
    ring: Ring
    base: Any
    """Where the ring lies in shared memory."""

    @staticmethod
    def rings(job: Job, stages: int) -> Ring:
        """The ring of a product: as many stages as fit and as an item has steps; x only where one stage has room."""
        form = FORMATS[job.format]
        ring = Ring(form=form, warps=job.config.warps, tiles=job.tiles, stages=1)
        if job.rows <= job.config.ring_rows:
            inputs = Inputs(form=form, rows=job.rows, row_bytes=2 * job.k)
            wider = attrs.evolve(ring, inputs=inputs)
            ring = wider if wider.stage_bytes <= MAX_BYTES else ring
        return attrs.evolve(ring, stages=max(min(stages, job.steps, MAX_BYTES // ring.stage_bytes), 1))

    def _copy(self, item: Any, step: Any, stage: Any) -> None:
        job, last = self.job, self.job.items - 1
        # not `where`: of two literals it lowers to a boolean (jax 0.11.2)
        limit = (item <= last).astype(jnp.int32) * job.blocks
        tiles = read_tiles(job, jnp.minimum(item, last))
        self.ring.copy(self.base + stage * self.ring.stage_bytes, self.refs, self.layer, tiles, step, limit)

    def fill(self) -> None:
        """Begin to copy the first item's first steps. Needs nothing but weights."""
        for stage in range(self.ring.stages):
            self._copy(self.pid, stage, stage)

    def _take(self, lanes: Lanes, anchor: Any, step: Any, stage: Any) -> tuple[Any, Any]:
        """Weights ([tile][chunk][operand]) and x ([half][chunk][piece]) of a step."""
        job, ring = self.job, self.ring
        place = self.base + stage * ring.stage_bytes
        if ring.inputs is not None:
            return ring.take(place, anchor), ring.take_inputs(place, anchor, job.halves)
        xs = load_x(job, lanes, self.refs["x"], step * job.config.warps + lanes.warp)
        return ring.take(place, anchor), xs

    def _advance(self, lanes: Lanes, anchor: Any, item: Any, step: Any, stage: Any, accs: Any) -> tuple[Any, Any]:
        """One step of an item: take it, copy what comes a ring later into its place, multiply."""
        job, ring, steps = self.job, self.ring, self.job.steps
        loaded, xs = self._take(lanes, anchor, step, stage)
        beyond = step + ring.stages
        over = jnp.asarray(beyond >= steps).astype(jnp.int32)
        self._copy(item + over * job.programs, beyond - over * steps, stage)
        accs = tuple(
            tuple(multiply_block(job, loaded[t], xs[half], accs[t][half]) for half in range(job.halves))
            for t in range(job.tiles)
        )
        return lax.rem(stage + 1, ring.stages), accs

    def walk(self, ending: Epilogue) -> None:
        """Multiply and write all items of the program; `fill` comes before."""
        job, config = self.job, self.job.config
        lanes, factors = Lanes(job), ending.factors()
        anchor = plt.load(self.refs["x"].at[4 * lanes.column + lanes.register,])

        def one(item: Any, stage: Any) -> Any:
            early = ending.early(item)
            zero = jnp.zeros((config.warps, 128), jnp.float32)
            accs = tuple(tuple(zero for _ in range(job.halves)) for _ in range(job.tiles))

            def group(i: Any, carry: Any) -> Any:
                for u in range(config.unroll):
                    carry = self._advance(lanes, anchor, item, i * config.unroll + u, *carry)
                return carry

            whole = job.steps // config.unroll
            stage, accs = lax.fori_loop(0, whole, group, (stage, accs))
            for step in range(whole * config.unroll, job.steps):
                stage, accs = self._advance(lanes, anchor, item, step, stage, accs)
            ending.end(item, accs, factors, early)
            return stage

        first = jnp.int32(0)
        if job.items == job.programs:
            one(self.pid, first)
        else:
            mine = lax.div(job.items - 1 - self.pid + job.programs, job.programs)
            lax.fori_loop(0, mine, lambda i, stage: one(self.pid + i * job.programs, stage), first)


def run(
    job: Job,
    x: Activation,
    matrix: PackedMatrix,
    layer: jax.Array,
    outputs: dict[str, jax.ShapeDtypeStruct],
    more: dict[str, jax.Array],
    aliases: dict[str, str],
    ahead: tuple[Ahead, ...],
    interpret: bool = False,
) -> list[jax.Array]:
    """Call the kernel; `more` are the epilogue's operands, `aliases` operand names to output names."""
    rows, k = x.values.shape
    words = lax.bitcast_convert_type(x.values.reshape(rows * k // 2, 2), jnp.uint32)
    operands: dict[str, jax.Array] = {"x": words, "codes": matrix.codes}
    optional = {"high": matrix.high, "scales": matrix.scales, "row_scales": matrix.row_scales}
    operands.update({name: plane for name, plane in optional.items() if plane is not None})
    if x.squares is not None:
        operands["squares"] = x.squares
    operands["layer"] = layer
    operands.update(more)
    if job.ahead:
        operands.update(operands_of(ahead))
    names = (*operands, *outputs)
    order, out_order = list(operands), list(outputs)
    return list(
        pl.pallas_call(
            functools.partial(_kernel, job=job, names=names),
            grid=(job.programs,),
            in_specs=[whole(operand) for operand in operands.values()],
            out_specs=[whole(out) for out in outputs.values()],
            out_shape=list(outputs.values()),
            input_output_aliases={order.index(a): out_order.index(b) for a, b in aliases.items()},
            compiler_params=plt.CompilerParams(num_warps=job.config.warps, num_stages=1),
            interpret=interpret,
            name=f"{job.epilogue}_{job.format}",
        )(*operands.values())
    )


def plan(
    x: Activation, matrix: PackedMatrix, epilogue: str, out_shift: int, config: Config, ahead: tuple[Ahead, ...]
) -> Job:
    """The static facts of a product.

    Raises:
        ValueError: the shape cannot be cut into whole tiles of whole blocks.
    """
    job = Job(
        format=matrix.format,
        rows=int(x.values.shape[0]),
        n=matrix.n,
        k=matrix.k,
        epilogue=epilogue,
        config=config,
        squares=x.squares is not None,
        shift=x.shift,
        eps=x.eps,
        out_shift=out_shift,
    )
    if matrix.codes.shape[3] != 4 or matrix.n % (16 * job.tiles):
        raise ValueError(f"the kernel has no cut for {matrix.format} [{matrix.n}, {matrix.k}]; the reference has")
    return attrs.evolve(job, ahead=shares_of(ahead, job.programs))


def project(
    x: Activation,
    matrix: PackedMatrix,
    layer: jax.Array,
    *,
    out_dtype: DTypeLike,
    ahead: tuple[Ahead, ...] = (),
    config: Config | None = None,
) -> jax.Array:
    """See `kernels_pallas.quant_matmul.project`. `config`: another cut than the table's, to measure it."""
    config = config or config_for(matrix.format, matrix.n, matrix.k, "plain")
    job = plan(x, matrix, "plain", 0, config, ahead)
    outputs = {"out": jax.ShapeDtypeStruct((job.rows, job.n), out_dtype)}
    return run(job, x, matrix, layer, outputs, {}, {}, ahead)[0]


def project_gated(
    x: Activation,
    matrix: PackedMatrix,
    layer: jax.Array,
    *,
    out_dtype: DTypeLike,
    shift: int,
    ahead: tuple[Ahead, ...] = (),
    config: Config | None = None,
) -> Activation:
    """See `kernels_pallas.quant_matmul.project_gated`."""
    config = config or config_for(matrix.format, matrix.n, matrix.k, "gated")
    job = plan(x, matrix, "gated", shift, config, ahead)
    outputs = {"out": jax.ShapeDtypeStruct((job.rows, job.n // 2), out_dtype)}
    (values,) = run(job, x, matrix, layer, outputs, {}, {}, ahead)
    return Activation(values=values, shift=shift)


def project_residual(
    x: Activation,
    matrix: PackedMatrix,
    layer: jax.Array,
    residual: jax.Array,
    gains: jax.Array,
    gain_index: jax.Array,
    *,
    out_dtype: DTypeLike,
    shift: int,
    eps: float,
    ahead: tuple[Ahead, ...] = (),
    config: Config | None = None,
) -> tuple[jax.Array, Activation]:
    """See `kernels_pallas.quant_matmul.project_residual`."""
    config = config or config_for(matrix.format, matrix.n, matrix.k, "residual")
    job = plan(x, matrix, "residual", shift, config, ahead)
    outputs = {
        "residual_out": jax.ShapeDtypeStruct(residual.shape, jnp.float32),
        "out": jax.ShapeDtypeStruct(residual.shape, out_dtype),
        "squares_out": jax.ShapeDtypeStruct((job.rows, job.n // 16), jnp.float32),
    }
    more = {"residual": residual, "gains": gains, "gain_index": gain_index}
    new, values, squares = run(job, x, matrix, layer, outputs, more, {"residual": "residual_out"}, ahead)
    return new, Activation(values=values, squares=squares, shift=shift, eps=eps)
