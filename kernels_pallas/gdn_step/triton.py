"""One delta-net step in one launch: programs per row and value head. Pallas-Triton.

A program walks through tiles of its head's state, `columns` wide, and holds one in registers between its only read and
its only write, while the next is on its way. Everything else it computes itself: the gates from the row's activation
(two products of length H), convolution and lengths of its query, key and value. The value heads of one key head do that
twice or thrice, which is cheaper than a second launch. With few rows the tiles of a head are dealt out to several
programs; the last that arrives does the norm over all of dv.

Invariant: a program depends on its own row alone, and what a tile does on nothing but its place, so a row's bits depend
on no other row, not on their number, and not on how tiles are dealt out.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas import overlap
from kernels_pallas.arrays import Activation
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
    squares = () if x.squares is None else (x.squares,)
    operands = (
        layer, slots, positions, projected, x.values, *squares, weights.ab, weights.conv, weights.a_log,
        weights.dt_bias, weights.norm, state.recurrent, state.conv, state.arrivals,
    )  # fmt: skip
    outputs = [
        jax.ShapeDtypeStruct((rows, sizes.values), out_dtype),
        jax.ShapeDtypeStruct((rows, sizes.values), jnp.float32),  # before the norm: where the tiles of a head meet
        *(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in operands[-3:]),
    ]
    out, _, recurrent, conv, arrivals = pl.pallas_call(
        functools.partial(
            _kernel if squares else _without_squares, sizes=sizes, columns=columns, parts=parts, eps=eps, x_eps=x.eps,
            x_scale=2.0**x.shift, prefetched=options.prefetched and not interpret, on_device=not interpret,
        ),
        grid=(parts, sizes.value_heads, rows),
        in_specs=[_whole(operand) for operand in operands],
        out_specs=[_whole(output) for output in outputs],
        out_shape=outputs,
        input_output_aliases={len(operands) - 3 + place: 2 + place for place in range(3)},
        compiler_params=plt.CompilerParams(num_warps=options.num_warps, num_stages=1),
        interpret=interpret,
        name="gdn_step",
    )(*operands)  # fmt: skip
    changed = GdnState(recurrent=recurrent, conv=conv, arrivals=arrivals)
    return Activation(values=out, squares=None, shift=0, eps=0.0), changed


def _without_squares(*refs: Ref, **static: Any) -> None:
    with_none: list[Any] = [*refs[:5], None, *refs[5:]]
    _kernel(*with_none, **static)


def _kernel(
    layer_ref: Ref,
    slots_ref: Ref,
    positions_ref: Ref,
    projected_ref: Ref,
    x_ref: Ref,
    squares_ref: Ref | None,
    ab_ref: Ref,
    taps_ref: Ref,
    a_log_ref: Ref,
    dt_bias_ref: Ref,
    gain_ref: Ref,
    _recurrent: Ref,
    _conv: Ref,
    _arrivals: Ref,
    out_ref: Ref,
    raw_ref: Ref,
    recurrent_ref: Ref,
    conv_ref: Ref,
    arrivals_ref: Ref,
    *,
    sizes: GdnSizes,
    columns: int,
    parts: int,
    eps: float,
    x_eps: float,
    x_scale: float,
    prefetched: bool,
    on_device: bool,
) -> None:
    part, head, row = pl.program_id(0), pl.program_id(1), pl.program_id(2)
    layer, slot, position = layer_ref[0], slots_ref[row], positions_ref[row]
    real, slot = slot >= 0, jnp.maximum(slot, 0)
    key_head = lax.div(head, sizes.share)
    at_query, at_key = key_head * sizes.key_dim, sizes.keys + key_head * sizes.key_dim
    tiles = sizes.value_dim // columns // parts
    first = [(part * tiles + tile) * columns for tile in range(tiles)]
    if prefetched:
        share = sizes.key_dim // parts
        overlap.prefetch(recurrent_ref, (layer, slot, head, part * share, 0), share * sizes.value_dim * 4)

    # 1. The first tile and everything that is needed before the state is read, before anything is computed.
    whole = (sizes.key_dim, columns)
    held, mine = jnp.broadcast_to(real & (position > 0), whole), jnp.broadcast_to(real, whole)

    def tile_at(column: jax.Array) -> Ref:
        return recurrent_ref.at[layer, slot, head, :, pl.ds(column, columns)]

    ahead = plt.load(tile_at(first[0]), mask=held, other=0.0)
    _hold(on_device)
    window = functools.partial(_load_window, projected_ref, conv_ref, taps_ref, layer, slot, row, position)
    query_window, key_window = window(at_query, sizes.key_dim), window(at_key, sizes.key_dim)
    at_values = [2 * sizes.keys + head * sizes.value_dim + column for column in first]
    value_windows = [window(at_value, columns) for at_value in at_values]
    pieces = _load_pieces(x_ref, ab_ref, layer, row, head, sizes.value_heads)
    squares = None if squares_ref is None else _load_squares(squares_ref, row)
    a_log, dt_bias = a_log_ref[layer, head], dt_bias_ref[layer, head]
    _hold(on_device)

    # 2. Gates, query and key, while the state is on its way.
    mean_square = None if squares is None else jnp.sum(squares) * (1.0 / x_ref.shape[1])
    scale = x_scale if mean_square is None else lax.rsqrt(mean_square + x_eps) * x_scale
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
        raw_ref[row, pl.ds(head * sizes.value_dim + column, columns)] = raw

    # 4. The ring. Heads that share a key head hold equal inputs: one program stores them.
    keep = functools.partial(_keep, conv_ref, layer, slot, position)
    for_all = real & (lax.rem(head, sizes.share) == 0) & (part == 0)
    keep(at_query, query_window, for_all)
    keep(at_key, key_window, for_all)
    for at_value, value_window in zip(at_values, value_windows, strict=True):
        keep(at_value, value_window, real)

    # 5. Norm and output gate, by the last program of the head.
    _hold(on_device)  # every thread's part of the raw output is written
    finish = functools.partial(_finish, projected_ref, gain_ref, raw_ref, out_ref, layer, row, head, real, sizes, eps)
    if parts == 1:
        finish()
        return
    last = plt.atomic_add(arrivals_ref, (row, head), jnp.int32(1)) == parts - 1

    @pl.when(last)
    def _() -> None:
        arrivals_ref[row, head] = 0
        finish()


def _hold(on_device: bool) -> None:
    """A barrier. ptxas moves loads down to their first use, so that one latency follows another; not across this."""
    if on_device:  # it has no interpretation
        plt.debug_barrier()


def _finish(
    projected_ref: Ref,
    gain_ref: Ref,
    raw_ref: Ref,
    out_ref: Ref,
    layer: jax.Array,
    row: jax.Array,
    head: jax.Array,
    real: jax.Array,
    sizes: GdnSizes,
    eps: float,
) -> None:
    here = pl.ds(head * sizes.value_dim, sizes.value_dim)
    raw = raw_ref[row, here]
    gate = projected_ref[row, pl.ds(sizes.channels + head * sizes.value_dim, sizes.value_dim)]
    mean_square = jnp.sum(raw * raw) * (1.0 / sizes.value_dim)
    normed = raw * lax.rsqrt(mean_square + eps) * gain_ref[layer, :] * silu(gate)
    out_ref[row, here] = to_dtype(jnp.where(real, normed, 0.0), out_ref.dtype)


def _load_window(
    projected_ref: Ref,
    conv_ref: Ref,
    taps_ref: Ref,
    layer: jax.Array,
    slot: jax.Array,
    row: jax.Array,
    position: jax.Array,
    first: jax.Array,
    width: int,
) -> _Window:
    """The newest inputs of `width` channels, the ring's rows [4, width] without what is too old, and their taps.

    Two-dimensional on purpose: Triton would load and compute a one-dimensional tile of this size again in every warp.
    """
    channel = first + lax.broadcasted_iota(jnp.int32, (CONV_TAPS, width), 1)
    ring_row = lax.broadcasted_iota(jnp.int32, (CONV_TAPS, width), 0)
    back = lax.rem(position + CONV_TAPS - ring_row, CONV_TAPS)  # how many tokens ago this row was written
    ring = conv_ref.at[layer, jnp.maximum(slot, 0), ring_row, channel]
    earlier = plt.load(ring, mask=(back > 0) & (position >= back), other=0.0)
    newest = projected_ref[row, pl.ds(first, width)]
    return _Window(newest, earlier, taps_ref[layer, CONV_TAPS - 1 - back, channel], back)


def _convolve(window: _Window) -> jax.Array:
    inputs = jnp.where(window.back > 0, window.earlier, window.newest[None, :])
    return silu(jnp.sum(inputs * window.taps, axis=0))


def _keep(
    conv_ref: Ref,
    layer: jax.Array,
    slot: jax.Array,
    position: jax.Array,
    first: jax.Array,
    window: _Window,
    mine: jax.Array,
) -> None:
    newest = window.newest
    ring = conv_ref.at[layer, slot, lax.rem(position, CONV_TAPS), pl.ds(first, newest.shape[0])]
    plt.store(ring, newest, mask=jnp.broadcast_to(mine, newest.shape))


def _load_pieces(
    x_ref: Ref, ab_ref: Ref, layer: jax.Array, row: jax.Array, head: jax.Array, value_heads: int
) -> list[tuple[jax.Array, jax.Array, jax.Array]]:
    """Pieces of x and of the head's rows of a and b."""
    width = x_ref.shape[1]
    block = min(_MAX_BLOCK, width & -width)
    pieces = [pl.ds(start, block) for start in range(0, width, block)]
    return [(x_ref[row, at], ab_ref[layer, head, at], ab_ref[layer, value_heads + head, at]) for at in pieces]


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
