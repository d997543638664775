"""One delta-net step in one launch: programs per row and value head. Pallas-Triton.

A program walks through tiles of its head's state, `columns` wide, and holds one in registers between its only read and
its only write, while the next is on its way. Everything else it computes itself: the gates from the row's activation
(two products of length H), convolution and lengths of its query, key and value. The value heads of one key head do that
twice or thrice, which is cheaper than a second launch. With few rows the tiles of a head are dealt out to several
programs; the last that arrives does the norm over all of dv.

Invariant: a program depends on its own row alone, and what a tile does on nothing but its place, so a row's bits depend
on no other row, not on their number, and not on how tiles are dealt out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas import overlap
from kernels_pallas.ahead import Share, ask, operands_of, shares_of
from kernels_pallas.arrays import Activation, Ahead
from kernels_pallas.gdn_step.reference import silu, softplus, to_dtype
from kernels_pallas.gdn_step.state import CONV_TAPS, L2_EPSILON, GdnSizes, GdnState, GdnWeights, sizes_of
from kernels_pallas.gdn_step.tuning import DEFAULT, GdnStepOptions

_MAX_BLOCK = 1024
"""Longest piece of x that is multiplied at once."""

Ref: TypeAlias = Any
"""An array in device memory as a kernel sees it: jax has no public type for it."""


class _Window(NamedTuple):
    """What the convolution of some channels needs."""

    newest: jax.Array
    """[width]"""
    earlier: jax.Array
    """[4, width], the ring's rows; what is too old is 0"""
    taps: jax.Array
    """[4, width], in the order of the ring's rows"""
    back: jax.Array
    """int32 [4, width]: how many tokens ago a row was written"""


def gdn_step_triton(
    projected: jax.Array,
    x: Activation,
    state: GdnState,
    weights: GdnWeights,
    layer: jax.Array,
    slots: jax.Array,
    positions: jax.Array,
    *,
    eps: float,
    out_dtype: jnp.dtype,
    ahead: tuple[Ahead, ...] = (),
    options: GdnStepOptions = DEFAULT,
    interpret: bool = False,
) -> tuple[Activation, GdnState]:
    """See `kernels_pallas.gdn_step.gdn_step`. Widths of heads must be powers of two."""
    sizes = sizes_of(state)
    if sizes.key_dim & (sizes.key_dim - 1) or sizes.value_dim & (sizes.value_dim - 1):
        raise NotImplementedError(f"heads of {sizes.key_dim} x {sizes.value_dim} are no powers of two")
    columns = min(options.columns, sizes.value_dim)
    parts = min(options.parts(projected.shape[0]), sizes.value_dim // columns)
    rows = projected.shape[0]
    operands = {
        "layer": layer,
        "slots": slots,
        "positions": positions,
        "projected": projected,
        "x": x.values,
        "squares": x.squares,
        "ab": weights.ab,
        "taps": weights.conv,
        "a_log": weights.a_log,
        "dt_bias": weights.dt_bias,
        "gain": weights.norm,
        **(operands_of(ahead) if not interpret else {}),
        "before": state.recurrent,
        "ring_before": state.conv,
        "arrived_before": state.arrivals,
    }
    present = {name: operand for name, operand in operands.items() if operand is not None}
    outputs = {
        "out": jax.ShapeDtypeStruct((rows, sizes.values), out_dtype),
        "raw": jax.ShapeDtypeStruct((rows, sizes.values), jnp.float32),
        "recurrent": jax.ShapeDtypeStruct(state.recurrent.shape, state.recurrent.dtype),
        "conv": jax.ShapeDtypeStruct(state.conv.shape, state.conv.dtype),
        "arrivals": jax.ShapeDtypeStruct(state.arrivals.shape, state.arrivals.dtype),
    }
    job = _Job(
        sizes=sizes,
        columns=columns,
        parts=parts,
        eps=eps,
        x_eps=x.eps,
        x_scale=2.0**x.shift,
        ahead=shares_of(ahead, parts * sizes.value_heads * rows) if not interpret else (),
        options=options,
        prefetched=options.prefetched and not interpret,
        on_device=not interpret,
    )
    names = (*present, *outputs)
    out, _, recurrent, conv, arrivals = pl.pallas_call(
        lambda *refs: _kernel(job, _by_name(names, refs)),
        grid=(parts, sizes.value_heads, rows),
        in_specs=[_whole(operand) for operand in present.values()],
        out_specs=[_whole(output) for output in outputs.values()],
        out_shape=list(outputs.values()),
        input_output_aliases={len(present) - 3 + place: 2 + place for place in range(3)},
        compiler_params=plt.CompilerParams(num_warps=options.num_warps, num_stages=1),
        interpret=interpret,
        name="gdn_step",
    )(*present.values())
    changed = GdnState(recurrent=recurrent, conv=conv, arrivals=arrivals)
    return Activation(values=out, squares=None, shift=0, eps=0.0), changed


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What is fixed when the kernel is compiled."""

    sizes: GdnSizes
    columns: int
    parts: int
    eps: float
    x_eps: float
    x_scale: float
    ahead: tuple[Share, ...]
    options: GdnStepOptions
    prefetched: bool
    on_device: bool


class _Refs(NamedTuple):
    """Operands, then outputs."""

    layer: Ref
    slots: Ref
    positions: Ref
    projected: Ref
    x: Ref
    ab: Ref
    taps: Ref
    a_log: Ref
    dt_bias: Ref
    gain: Ref
    before: Ref
    """The same memory as `recurrent`; the next two likewise."""
    ring_before: Ref
    arrived_before: Ref
    out: Ref
    raw: Ref
    """Before the norm: where the tiles of a head meet."""
    recurrent: Ref
    conv: Ref
    arrivals: Ref
    squares: Ref = None
    ahead: Mapping[str, Ref] = MappingProxyType({})
    """By their names in `kernels_pallas.ahead`."""


def _by_name(names: Sequence[str], refs: Sequence[Ref]) -> _Refs:
    given = dict(zip(names, refs, strict=True))
    ahead = {name: given.pop(name) for name in names if name.startswith("ahead")}
    return _Refs(**given, ahead=ahead)


class _Here(NamedTuple):
    """Whose step a program does."""

    row: jax.Array
    head: jax.Array
    layer: jax.Array
    slot: jax.Array
    position: jax.Array
    real: jax.Array
    """bool: not padding"""


def _kernel(job: _Job, refs: _Refs) -> None:
    sizes, columns = job.sizes, job.columns
    part, head, row, slot = pl.program_id(0), pl.program_id(1), pl.program_id(2), refs.slots[pl.program_id(2)]
    here = _Here(row, head, refs.layer[0], jnp.maximum(slot, 0), refs.positions[row], slot >= 0)
    key_head = lax.div(head, sizes.share)
    at_query, at_key = key_head * sizes.key_dim, sizes.keys + key_head * sizes.key_dim
    tiles = sizes.value_dim // columns // job.parts
    first = [(part * tiles + tile) * columns for tile in range(tiles)]

    # 1. The first tile and everything that is needed before the state is read, before anything is computed.
    held, mine = (jnp.broadcast_to(m, (sizes.key_dim, columns)) for m in (here.real & (here.position > 0), here.real))

    def tile_at(column: jax.Array) -> Ref:
        return refs.recurrent.at[here.layer, here.slot, head, :, pl.ds(column, columns)]

    if job.options.release and job.on_device:
        overlap.release_next(refs.ab)
    if job.prefetched:
        _ask_for_state(job, refs, here, part)
    ahead = plt.load(tile_at(first[0]), mask=held, other=0.0)
    _hold(job)
    query_window, key_window = (_load_window(refs, here, at, sizes.key_dim) for at in (at_query, at_key))
    at_values = [2 * sizes.keys + head * sizes.value_dim + column for column in first]
    value_windows = [_load_window(refs, here, at_value, columns) for at_value in at_values]
    pieces = _load_pieces(refs, here, sizes.value_heads)
    squares = None if refs.squares is None else _load_squares(refs.squares, row)
    a_log, dt_bias = refs.a_log[here.layer, head], refs.dt_bias[here.layer, head]
    _hold(job)
    program = (row * sizes.value_heads + head) * job.parts + part
    if not job.options.ask_late:
        ask(job.ahead, refs.ahead, program)

    # 2. Gates, query and key, while the state is on its way.
    scale = job.x_scale if squares is None else _norm_factor(job, squares, refs.x.shape[1])
    a, b = (jnp.sum(product) * scale for product in _multiply(pieces))
    decay = jnp.exp(-jnp.exp(a_log) * softplus(a + dt_bias))
    beta = 1.0 / (1.0 + jnp.exp(-b))
    query, key = _convolve(query_window), _convolve(key_window)
    query = query * (lax.rsqrt(jnp.sum(query * query) + L2_EPSILON) * sizes.key_dim**-0.5)
    key = key * lax.rsqrt(jnp.sum(key * key) + L2_EPSILON)
    met = jnp.sum(key * query)

    # 3. The recurrence. Both products read the old state: o = S_new^T q = exp(g) S^T q + (k . q) u.
    for tile, column in enumerate(first):
        before = ahead
        if tile + 1 < tiles:
            ahead = plt.load(tile_at(first[tile + 1]), mask=held, other=0.0)
        value = _convolve(value_windows[tile])
        change = beta * (value - decay * jnp.sum(before * key[:, None], axis=0))
        raw = decay * jnp.sum(before * query[:, None], axis=0) + met * change
        plt.store(tile_at(column), before * decay + key[:, None] * change[None, :], mask=mine)
        refs.raw[row, pl.ds(head * sizes.value_dim + column, columns)] = raw
        if tile == 0 and job.ahead and job.options.ask_late:
            _hold(job)
            ask(job.ahead, refs.ahead, program)

    # 4. The ring. Heads that share a key head hold equal inputs: one program stores them.
    for_all = here.real & (lax.rem(head, sizes.share) == 0) & (part == 0)
    windows = [(at_query, query_window, for_all), (at_key, key_window, for_all)]
    windows += [(at, window, here.real) for at, window in zip(at_values, value_windows, strict=True)]
    for at, window, stored in windows:
        _keep(refs, here, at, window, stored)

    # 5. Norm and output gate, by the last program of the head.
    _hold(job)  # every thread's part of the raw output is written
    if job.parts == 1:
        _finish(job, refs, here)
        return
    last = plt.atomic_add(refs.arrivals, (row, head), jnp.int32(1)) == job.parts - 1

    @pl.when(last)
    def _() -> None:
        refs.arrivals[row, head] = 0
        _finish(job, refs, here)


def _ask_for_state(job: _Job, refs: _Refs, here: _Here, part: jax.Array) -> None:
    """This part's share of the head's rows into L2."""
    share = job.sizes.key_dim // job.parts
    corner = (here.layer, here.slot, here.head, part * share, 0)
    overlap.prefetch(refs.recurrent, corner, share * job.sizes.value_dim * 4)


def _norm_factor(job: _Job, squares: jax.Array, width: int) -> jax.Array:
    return lax.rsqrt(jnp.sum(squares) * (1.0 / width) + job.x_eps) * job.x_scale


def _hold(job: _Job) -> None:
    """A barrier. ptxas moves loads down to their first use, so that one latency follows another; not across this."""
    if job.on_device:  # it has no interpretation
        plt.debug_barrier()


def _finish(job: _Job, refs: _Refs, here: _Here) -> None:
    width = job.sizes.value_dim
    own = pl.ds(here.head * width, width)
    raw = refs.raw[here.row, own]
    gate = refs.projected[here.row, pl.ds(job.sizes.channels + here.head * width, width)]
    mean_square = jnp.sum(raw * raw) * (1.0 / width)
    normed = raw * lax.rsqrt(mean_square + job.eps) * refs.gain[here.layer, :] * silu(gate)
    refs.out[here.row, own] = to_dtype(jnp.where(here.real, normed, 0.0), refs.out.dtype)


def _load_window(refs: _Refs, here: _Here, first: jax.Array, width: int) -> _Window:
    """The newest inputs of `width` channels, the ring's rows [4, width] without what is too old, and their taps.

    Two-dimensional on purpose: Triton would load and compute a one-dimensional tile of this size again in every warp.
    """
    channel = first + lax.broadcasted_iota(jnp.int32, (CONV_TAPS, width), 1)
    ring_row = lax.broadcasted_iota(jnp.int32, (CONV_TAPS, width), 0)
    back = lax.rem(here.position + CONV_TAPS - ring_row, CONV_TAPS)  # how many tokens ago this row was written
    ring = refs.conv.at[here.layer, here.slot, ring_row, channel]
    earlier = plt.load(ring, mask=(back > 0) & (here.position >= back), other=0.0)
    newest = refs.projected[here.row, pl.ds(first, width)]
    return _Window(newest, earlier, refs.taps[here.layer, CONV_TAPS - 1 - back, channel], back)


def _convolve(window: _Window) -> jax.Array:
    inputs = jnp.where(window.back > 0, window.earlier, window.newest[None, :])
    return silu(jnp.sum(inputs * window.taps, axis=0))


def _keep(refs: _Refs, here: _Here, first: jax.Array, window: _Window, mine: jax.Array) -> None:
    newest = window.newest
    ring = refs.conv.at[here.layer, here.slot, lax.rem(here.position, CONV_TAPS), pl.ds(first, newest.shape[0])]
    plt.store(ring, newest, mask=jnp.broadcast_to(mine, newest.shape))


def _load_pieces(refs: _Refs, here: _Here, value_heads: int) -> list[tuple[jax.Array, jax.Array, jax.Array]]:
    """Pieces of x and of the head's rows of a and b."""
    width = refs.x.shape[1]
    block = min(_MAX_BLOCK, width & -width)
    pieces = [pl.ds(start, block) for start in range(0, width, block)]
    own, other = (here.layer, here.head), (here.layer, value_heads + here.head)
    return [(refs.x[here.row, at], refs.ab[(*own, at)], refs.ab[(*other, at)]) for at in pieces]


def _multiply(pieces: list[tuple[jax.Array, jax.Array, jax.Array]]) -> tuple[jax.Array, jax.Array]:
    """Products with the rows of a and of b, added over the pieces."""
    a = b = jnp.zeros(pieces[0][0].shape, jnp.float32)
    for x, a_row, b_row in pieces:
        a = a + x.astype(jnp.float32) * a_row.astype(jnp.float32)
        b = b + x.astype(jnp.float32) * b_row.astype(jnp.float32)
    return a, b


def _load_squares(squares_ref: Ref, row: jax.Array) -> jax.Array:
    parts = squares_ref.shape[1]
    index = lax.broadcasted_iota(jnp.int32, (pl.next_power_of_2(parts),), 0)
    return plt.load(squares_ref.at[row, jnp.minimum(index, parts - 1)], mask=index < parts, other=0.0)


def _whole(operand: jax.Array | jax.ShapeDtypeStruct) -> pl.BlockSpec:
    """All of an array: a program finds its own part, so no index map copies anything."""
    return pl.BlockSpec(operand.shape, _origin(len(operand.shape)))


def _origin(dims: int) -> Callable[..., tuple[int, ...]]:
    return lambda *_: (0,) * dims
