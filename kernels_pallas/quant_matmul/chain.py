"""Four products of a layer in one kernel: what follows a mixer, up to the next mixer's input.

    residual += out(mixed); hidden = gated(norm(residual)); residual += down(hidden); projected = next(norm(residual))

Each product is what triton.py makes of it alone. In one kernel the memory does not stand still between them: while a
program waits for the others at a barrier of the whole grid, the first blocks of its next matrix already come into its
ring. All programs must be on the device at once, or a barrier would never open: `programs` are at most three on each
multiprocessor, which fit with up to 168 registers a thread (a test assembles them and looks). A barrier that waits for
seconds traps, so that a mistake is an error of the device and no hang.

Knows nothing of mixers. Invariant: counters are zero before and after.
"""

from __future__ import annotations

import functools
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.arrays import Activation, Ahead
from kernels_pallas.overlap import assembly
from kernels_pallas.packing import FORMATS
from kernels_pallas.quant_matmul import triton
from kernels_pallas.quant_matmul.ring import MAX_BYTES, Ring, open_ring
from kernels_pallas.quant_matmul.tuning import ChainConfig, Config, chain_config_for

Ref = Any

_DRAIN = "{ mov.u32 $0, 0; cp.async.wait_all; }"
_ARRIVE = (
    "{ .reg .pred p; .reg .b32 t; mov.u32 $0, 0; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0;"
    " @p fence.acq_rel.gpu; @p red.release.gpu.global.add.u32 [$1], 1; }"
)
_WAIT = (
    "{{ .reg .pred p; .reg .b32 t,n; mov.u32 $0, 0; mov.u32 t, %tid.x; setp.ne.u32 p, t, 0; mov.u32 n, 0; @p bra DONE;"
    " LOOP: ld.acquire.gpu.global.u32 t, [$1]; setp.ge.u32 p, t, {programs}; @p bra DONE;"
    " add.u32 n, n, 1; setp.lt.u32 p, n, 20000000; @p bra LOOP; trap; DONE: }}"
)
_LEAVE = (
    "{{ .reg .pred p,q; .reg .b32 t,o; mov.u32 $0, 0; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; mov.u32 o, 0;"
    " @p atom.acq_rel.gpu.global.add.u32 o, [$1], 1; setp.eq.u32 q, o, {last}; and.pred q, p, q;"
    " @q st.global.u32 [$1], 0; @q st.global.u32 [$1+128], 0; @q st.global.u32 [$1+256], 0;"
    " @q st.global.u32 [$1+384], 0; }}"
)
WARPS = 4
"""Of a program, for all of its products."""
SLOT = 32
"""Counters stand on cache lines of their own: the exit's, then one per barrier."""


@attrs.frozen(kw_only=True)
class Link:
    """One product: its static facts, and where it finds what: triton.py's names to those of this kernel's operands."""

    job: triton.Job
    names: dict[str, str]


def _kernel(*all_refs: Ref, links: tuple[Link, ...], names: tuple[str, ...]) -> None:
    refs = dict(zip(names, all_refs, strict=True))
    pid = pl.program_id(0)
    programs = links[0].job.programs
    views = [{name: refs[place] for name, place in link.names.items()} for link in links]
    layers = [view["layer"][0] for view in views]
    rings = [triton.Stream.rings(link.job, link.job.config.ring) for link in links]
    base = open_ring(views[0]["codes"], max(ring.size_bytes for ring in rings))
    streams = [
        triton.Stream(job=link.job, refs=view, layer=layer, pid=pid, ring=ring, base=base)
        for link, view, layer, ring in zip(links, views, layers, rings, strict=True)
    ]
    streams[0].fill()
    for i, stream in enumerate(streams):
        stream.walk()
        if i + 1 < len(streams):
            at = [(refs["counters_out"], ((i + 1) * SLOT,))]
            assembly(_DRAIN, "=r,l", addresses=at)  # copies beyond the end fill with zeros, but late
            plt.debug_barrier()  # every thread of the program has written what it writes
            assembly(_ARRIVE, "=r,l", addresses=at)
            streams[i + 1].fill()
            assembly(_WAIT.format(programs=programs), "=r,l", addresses=at)
            plt.debug_barrier()
    assembly(_LEAVE.format(last=programs - 1), "=r,l", addresses=[(refs["counters_out"], (0,))])


def _stages(format: str, tiles: int) -> int:
    """As many stages as fit, at most 4."""
    ring = Ring(form=FORMATS[format], warps=WARPS, tiles=tiles, stages=1)
    return max(1, min(4, MAX_BYTES // ring.size_bytes))


def _job(x: Activation, at: Ahead, epilogue: str, out_shift: int, config: ChainConfig) -> triton.Job:
    matrix = at.matrix
    tiles = 2 if epilogue == "gated" else 1
    cut = Config(warps=WARPS, ring=_stages(matrix.format, tiles), programs=config.programs)
    return triton.plan(x, matrix, epilogue, out_shift, cut, None)


def finish_layer(
    mixed: Activation,
    out: Ahead,
    gate_up: Ahead,
    down: Ahead,
    following: Ahead,
    residual: jax.Array,
    gains: jax.Array,
    gain_indices: tuple[jax.Array, jax.Array],
    counters: jax.Array,
    *,
    dtypes: tuple[Any, Any, Any],
    shift: int,
    gated_shift: int,
    eps: float,
    config: ChainConfig | None = None,
) -> tuple[jax.Array, Activation, jax.Array, jax.Array]:
    """See `kernels_pallas.quant_matmul.finish_layer`; `dtypes` of the inputs of gate_up, down and following."""
    rows, n = residual.shape
    config = config or chain_config_for([place.matrix.format for place in (out, gate_up, down, following)], rows)
    shapes_of: dict[str, tuple[tuple[int, ...], Any]] = {
        "residual_out": ((rows, n), jnp.float32),
        "x1": ((rows, n), dtypes[0]),
        "squares1": ((rows, n // 16), jnp.float32),
        "x2": ((rows, gate_up.matrix.n // 2), dtypes[1]),
        "x3": ((rows, n), dtypes[2]),
        "squares3": ((rows, n // 16), jnp.float32),
        "projected": ((rows, following.matrix.n), jnp.float32),
        "counters_out": (counters.shape, jnp.int32),
    }
    outputs = {name: jax.ShapeDtypeStruct(shape, dtype) for name, (shape, dtype) in shapes_of.items()}
    shapes: Any = outputs  # a plan looks at shapes only
    inputs = [
        mixed,
        Activation(values=shapes["x1"], squares=shapes["squares1"], shift=shift, eps=eps),
        Activation(values=shapes["x2"], shift=gated_shift),
        Activation(values=shapes["x3"], squares=shapes["squares3"], shift=shift, eps=eps),
    ]
    places = [out, gate_up, down, following]
    epilogues = [("residual", shift), ("gated", gated_shift), ("residual", shift), ("plain", 0)]
    views: list[dict[str, str]] = [
        {"x": "x0", "residual": "residual", "gain_index": "gain_index0", "out": "x1", "squares_out": "squares1"},
        {"x": "x1", "squares": "squares1", "out": "x2"},
        {"x": "x2", "residual": "residual_out", "gain_index": "gain_index2", "out": "x3", "squares_out": "squares3"},
        {"x": "x3", "squares": "squares3", "out": "projected"},
    ]
    words = lax.bitcast_convert_type(mixed.values.reshape(mixed.values.size // 2, 2), jnp.uint32)
    operands: dict[str, jax.Array] = {"x0": words, "residual": residual, "gains": gains, "counters": counters}
    operands |= {"gain_index0": gain_indices[0], "gain_index2": gain_indices[1]}
    if mixed.squares is not None:
        operands["squares0"] = mixed.squares
        views[0]["squares"] = "squares0"
    links = []
    for i, (place, (epilogue, out_shift), view) in enumerate(zip(places, epilogues, views, strict=True)):
        matrix = place.matrix
        planes = {"codes": matrix.codes, "high": matrix.high, "scales": matrix.scales, "row_scales": matrix.row_scales}
        for name, plane in planes.items():
            if plane is not None:
                operands[f"{name}{i}"] = plane
                view[name] = f"{name}{i}"
        operands[f"layer{i}"] = place.layer
        view["layer"] = f"layer{i}"
        if epilogue == "residual":
            view |= {"gains": "gains", "residual_out": "residual_out"}
        links.append(Link(job=_job(inputs[i], place, epilogue, out_shift, config), names=view))
    order, out_order = list(operands), list(outputs)
    aliases = {"residual": "residual_out", "counters": "counters_out"}
    whole = [pl.BlockSpec(a.shape, functools.partial(_origin, len(a.shape))) for a in operands.values()]
    results = pl.pallas_call(
        functools.partial(_kernel, links=tuple(links), names=(*operands, *outputs)),
        grid=(config.programs,),
        in_specs=whole,
        out_specs=[pl.BlockSpec(a.shape, functools.partial(_origin, len(a.shape))) for a in outputs.values()],
        out_shape=list(outputs.values()),
        input_output_aliases={order.index(a): out_order.index(b) for a, b in aliases.items()},
        compiler_params=plt.CompilerParams(num_warps=WARPS, num_stages=1),
        name=f"layer_{gate_up.matrix.format}",
    )(*operands.values())
    found = dict(zip(outputs, results, strict=True))
    following_x = Activation(values=found["x3"], squares=found["squares3"], shift=shift, eps=eps)
    return found["residual_out"], following_x, found["projected"], found["counters_out"]


def _origin(rank: int, *_: Any) -> tuple[int, ...]:
    return (0,) * rank
