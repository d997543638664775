"""The delta net over a prompt in five launches: convolution, each chunk by itself, the states in turn, output norm.

1. `gdn_convolve`, twice, a program per chunk and head: convolution, SiLU, and the length of queries and keys.
2. `gdn_prepare`, a program per chunk and value head: gates, and what a chunk needs of itself: the inverse of its
   triangular system (merges of blocks) and the products of queries and keys.
3. `gdn_scan`, a program per value head and some columns of its state, which stays in registers from the first chunk to
   the last. It writes the state back and brings the convolution's ring up to date.
4. `gdn_finish`: gated norm over a head.

Precision: queries, keys and values are rounded to float16 once. Where errors would go on into the state, a float32
operand may enter the tensor cores as a sum of two float16 numbers, 22 bits (`halves`: tuning.py has the errors).
Invariant: all tiles have fixed sizes on the absolute grid of 64 tokens: a row's bits depend neither on T nor on cuts.
"""

import functools
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.blocks import whole
from kernels_pallas.gdn_chunk.reference import CHUNK_TOKENS
from kernels_pallas.gdn_chunk.tuning import DEFAULT, GdnChunkOptions
from kernels_pallas.gdn_step.reference import silu, softplus, to_dtype
from kernels_pallas.gdn_step.state import CONV_TAPS, L2_EPSILON, GdnSizes, GdnState, GdnWeights, sizes_of

Ref: TypeAlias = Any
"""An array in device memory as a kernel sees it: jax has no public type for it."""

_F16 = jnp.dtype(jnp.float16)


class Prepared(NamedTuple):
    """What the scan reads. n chunks."""

    keys: jax.Array
    """float16 [n, 2 Hk, 64, dk], of length 1: queries, then keys; 0 past the end"""
    value: jax.Array
    """float16 [n, Hv, 64, dv]"""
    solve: jax.Array
    """float16 [n, Hv, halves, 64, 64]: (I + A)^-1 diag(beta), rounded, and with two halves what the rounding left"""
    inside: jax.Array
    """float16 [n, Hv, 64, 64]: how much of each write each query reads"""
    since_start: jax.Array
    """float32 [n, Hv, 64]: decay from the chunk's start to each token"""
    to_end: jax.Array
    """float32 [n, Hv, 64]: decay from each token to the chunk's end"""


def gdn_chunk_triton(
    projected: jax.Array,
    scores: jax.Array,
    state: GdnState,
    weights: GdnWeights,
    layer: jax.Array,
    slot: jax.Array,
    start: jax.Array,
    count: jax.Array,
    *,
    eps: float,
    out_dtype: jnp.dtype,
    options: GdnChunkOptions = DEFAULT,
    interpret: bool = False,
) -> tuple[jax.Array, GdnState]:
    """See `kernels_pallas.gdn_chunk.gdn_chunk`. Widths of heads must be powers of two of at least 16."""
    sizes = sizes_of(state)
    for width in (sizes.key_dim, sizes.value_dim):
        if width < 16 or width & (width - 1):
            raise NotImplementedError(f"heads of {sizes.key_dim} x {sizes.value_dim} are no powers of two from 16 on")
    place = _Place(*(jnp.reshape(scalar, (1,)) for scalar in (layer, slot, start, count)))
    convolve = functools.partial(_convolve, projected, state, weights, place, options=options, interpret=interpret)
    keys = convolve(first=0, heads=2 * sizes.key_heads, width=sizes.key_dim, unit=True)
    value = convolve(first=2 * sizes.keys, heads=sizes.value_heads, width=sizes.value_dim, unit=False)
    prepared = _prepare(keys, value, scores, weights, place, sizes, options, interpret)
    out, changed = _scan(prepared, projected, state, place, sizes, options, interpret)
    return _finish(out, projected, weights, place, sizes, eps, out_dtype, options, interpret), changed


class _Place(NamedTuple):
    """Where the tokens belong, int32 [1] each."""

    layer: jax.Array
    slot: jax.Array
    start: jax.Array
    tokens: jax.Array


# ------------------------------------------------------------------ 1. the convolution


def _convolve(
    projected: jax.Array,
    state: GdnState,
    weights: GdnWeights,
    place: _Place,
    first: int,
    heads: int,
    width: int,
    unit: bool,
    options: GdnChunkOptions,
    interpret: bool,
) -> jax.Array:
    """float16 [n, heads, 64, width]: convolution and SiLU of the channels from `first` on, of length 1 if `unit`."""
    n = projected.shape[0] // CHUNK_TOKENS
    output = jax.ShapeDtypeStruct((n, heads, CHUNK_TOKENS, width), jnp.float16)
    operands = (*place, projected, weights.conv, state.conv)
    convolved: jax.Array = pl.pallas_call(
        functools.partial(_convolve_kernel, first=first, unit=unit, rows=options.convolve_rows),
        grid=(projected.shape[0] // options.convolve_rows, heads),
        in_specs=[whole(operand) for operand in operands],
        out_specs=whole(output),
        out_shape=output,
        compiler_params=plt.CompilerParams(num_warps=options.convolve_warps, num_stages=1),
        interpret=interpret,
        name="gdn_convolve",
    )(*operands)
    return convolved


def _convolve_kernel(
    layer_ref: Ref,
    slot_ref: Ref,
    start_ref: Ref,
    count_ref: Ref,
    projected_ref: Ref,
    taps_ref: Ref,
    conv_ref: Ref,
    out_ref: Ref,
    *,
    first: int,
    unit: bool,
    rows: int,
) -> None:
    part, head = pl.program_id(0), pl.program_id(1)
    layer, slot, start = layer_ref[0], slot_ref[0], start_ref[0]
    width = out_ref.shape[3]
    lane = first + head * width + lax.broadcasted_iota(jnp.int32, (width,), 0)
    channel = first + head * width + lax.broadcasted_iota(jnp.int32, (rows, width), 1)
    row = part * rows + lax.broadcasted_iota(jnp.int32, (rows, width), 0)
    real = row < count_ref[0]
    total = jnp.zeros((rows, width), jnp.float32)
    for back in range(CONV_TAPS):
        token = row - back
        at = projected_ref.at[jnp.maximum(token, 0), channel]
        given = plt.load(at, mask=real & (token >= 0), other=0.0).astype(jnp.float32)
        if back:  # the first rows of a call reach back into the ring

            def from_ring(given: jax.Array, token: jax.Array = token) -> jax.Array:
                ring = conv_ref.at[layer, slot, lax.rem(start + token + CONV_TAPS, CONV_TAPS), channel]
                return given + plt.load(ring, mask=(token < 0) & (start + token >= 0), other=0.0)

            given = lax.cond(part == 0, from_ring, lambda given: given, given)
        total = total + given * taps_ref[layer, CONV_TAPS - 1 - back, lane][None, :]
    result = silu(total)
    if unit:
        result = result * lax.rsqrt(jnp.sum(result * result, axis=1) + L2_EPSILON)[:, None]
    in_chunk = pl.ds(lax.rem(part * rows, CHUNK_TOKENS), rows)
    result = to_dtype(jnp.where(real, result, 0.0), _F16)
    out_ref[lax.div(part * rows, CHUNK_TOKENS), head, in_chunk, :] = result


# ------------------------------------------------------------------ 2. every chunk by itself


def _prepare(
    keys: jax.Array,
    value: jax.Array,
    scores: jax.Array,
    weights: GdnWeights,
    place: _Place,
    sizes: GdnSizes,
    options: GdnChunkOptions,
    interpret: bool,
) -> Prepared:
    n = keys.shape[0]

    def shape(*rest: int, dtype: jnp.dtype = _F16) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((n, sizes.value_heads, CHUNK_TOKENS, *rest), dtype)

    halves = jax.ShapeDtypeStruct((n, sizes.value_heads, options.halves, CHUNK_TOKENS, CHUNK_TOKENS), _F16)
    scalar = shape(dtype=jnp.dtype(jnp.float32))
    outputs = [halves, shape(CHUNK_TOKENS), scalar, scalar]
    operands = (place.layer, place.tokens, keys, scores, weights.a_log, weights.dt_bias)
    prepared = pl.pallas_call(
        functools.partial(_prepare_kernel, sizes=sizes),
        grid=(n, sizes.value_heads),
        in_specs=[whole(operand) for operand in operands],
        out_specs=[whole(output) for output in outputs],
        out_shape=outputs,
        compiler_params=plt.CompilerParams(num_warps=options.prepare_warps, num_stages=1),
        interpret=interpret,
        name="gdn_prepare",
    )(*operands)
    return Prepared(keys, value, *prepared)


def _prepare_kernel(
    layer_ref: Ref,
    count_ref: Ref,
    keys_ref: Ref,
    scores_ref: Ref,
    a_log_ref: Ref,
    dt_bias_ref: Ref,
    solve_ref: Ref,
    inside_ref: Ref,
    since_start_ref: Ref,
    to_end_ref: Ref,
    *,
    sizes: GdnSizes,
) -> None:
    chunk, head = pl.program_id(0), pl.program_id(1)
    key_head, layer = lax.div(head, sizes.share), layer_ref[0]
    row = lax.broadcasted_iota(jnp.int32, (CHUNK_TOKENS,), 0)
    token = chunk * CHUNK_TOKENS + row
    real = token < count_ref[0]
    rate = -jnp.exp(a_log_ref[layer, head])
    log_decay = jnp.where(real, rate * softplus(scores_ref[token, head] + dt_bias_ref[layer, head]), 0.0)
    beta = jnp.where(real, 1.0 / (1.0 + jnp.exp(-scores_ref[token, sizes.value_heads + head])), 0.0)
    decay = jnp.cumsum(log_decay)
    over = lax.broadcasted_iota(jnp.int32, (CHUNK_TOKENS, CHUNK_TOKENS), 0)
    down = lax.broadcasted_iota(jnp.int32, (CHUNK_TOKENS, CHUNK_TOKENS), 1)
    # The mask is inside the exponential: above the diagonal the difference is positive and would overflow.
    ratio = jnp.exp(jnp.where(over >= down, decay[:, None] - decay[None, :], -jnp.inf))
    query, key = keys_ref[chunk, key_head, :, :], keys_ref[chunk, sizes.key_heads + key_head, :, :]
    inside = plt.dot(query, key, trans_b=True) * ratio * sizes.key_dim**-0.5
    inside_ref[chunk, head, :, :] = inside.astype(jnp.float16)
    overlap = jnp.where(over > down, beta[:, None] * plt.dot(key, key, trans_b=True) * ratio, 0.0)
    halves = solve_ref.shape[2]
    for half, part in enumerate(_halves(_unit_lower_inverse(overlap, halves) * beta[None, :], halves)):
        solve_ref[chunk, head, half, :, :] = part
    last = jnp.sum(jnp.where(row == CHUNK_TOKENS - 1, decay, 0.0))
    since_start_ref[chunk, head, :] = jnp.exp(decay)
    to_end_ref[chunk, head, :] = jnp.exp(last - decay)


def _halves(x: jax.Array, count: int) -> list[jax.Array]:
    """float32 as a sum of `count` float16: 11 bits of it, or 22."""
    parts = []
    for _ in range(count):
        parts.append(x.astype(jnp.float16))
        x = x - parts[-1].astype(jnp.float32)
    return parts


def _product(left: list[jax.Array], right: list[jax.Array], *, trans_a: bool = False) -> jax.Array:
    """The product of two sums of float16 parts, less that of their last parts where both have two."""
    total: jax.Array = plt.dot(left[0], right[0], trans_a=trans_a)
    for part in right[1:]:
        total = total + plt.dot(left[0], part, trans_a=trans_a)
    for part in left[1:]:
        total = total + plt.dot(part, right[0], trans_a=trans_a)
    return total


def _unit_lower_inverse(strict: jax.Array, halves: int) -> jax.Array:
    """(I + strict)^-1 for strictly lower triangular strict [64, 64], float32.

    Blocks of 1, 2, 4 ... 32 rows are merged, all of one width in two products:
    [[P, 0], [R, Q]]^-1 = [[P^-1, 0], [-Q^-1 R P^-1, Q^-1]]. Unlike powers of the matrix (Neumann), which lose every
    digit at 64 on correlated keys, this never leaves the size of the result, at most 1.
    """
    over = lax.broadcasted_iota(jnp.int32, strict.shape, 0)
    down = lax.broadcasted_iota(jnp.int32, strict.shape, 1)

    def below(width: int) -> jax.Array:
        pair = lax.div(over, 2 * width) == lax.div(down, 2 * width)
        return jnp.where(pair & (lax.div(over, width) != lax.div(down, width)), strict, 0.0)

    inverse = (over == down).astype(jnp.float32) - below(1)
    width = 2
    while width < CHUNK_TOKENS:
        parts = _halves(inverse, halves)
        inverse = inverse - _product(parts, _halves(_product(_halves(below(width), halves), parts), halves))
        width *= 2
    return inverse


# ------------------------------------------------------------------ 3. the states one after the other


def _scan(
    prepared: Prepared,
    projected: jax.Array,
    state: GdnState,
    place: _Place,
    sizes: GdnSizes,
    options: GdnChunkOptions,
    interpret: bool,
) -> tuple[jax.Array, GdnState]:
    columns = min(options.columns, sizes.value_dim)
    operands = (*place, *prepared, projected, state.recurrent, state.conv)
    outputs = (
        jax.ShapeDtypeStruct((projected.shape[0], sizes.values), jnp.float16),
        jax.ShapeDtypeStruct(state.recurrent.shape, jnp.float32),
        jax.ShapeDtypeStruct(state.conv.shape, jnp.float32),
    )
    out, recurrent, conv = pl.pallas_call(
        functools.partial(_scan_kernel, sizes=sizes, columns=columns),
        grid=(sizes.value_dim // columns, sizes.value_heads),
        in_specs=[whole(operand) for operand in operands],
        out_specs=[whole(output) for output in outputs],
        out_shape=list(outputs),
        input_output_aliases={len(operands) - 2: 1, len(operands) - 1: 2},
        compiler_params=plt.CompilerParams(num_warps=options.scan_warps, num_stages=options.scan_stages),
        interpret=interpret,
        name="gdn_scan",
    )(*operands)
    return out, GdnState(recurrent=recurrent, conv=conv)


def _scan_kernel(
    layer_ref: Ref,
    slot_ref: Ref,
    start_ref: Ref,
    count_ref: Ref,
    *refs: Ref,
    sizes: GdnSizes,
    columns: int,
) -> None:
    given = Prepared(*refs[: len(Prepared._fields)])
    projected_ref, _, _, out_ref, recurrent_ref, conv_ref = refs[len(Prepared._fields) :]
    part, head = pl.program_id(0), pl.program_id(1)
    key_head = lax.div(head, sizes.share)
    layer, slot, start, count = layer_ref[0], slot_ref[0], start_ref[0], count_ref[0]
    own = pl.ds(part * columns, columns)
    matrix = recurrent_ref.at[layer, slot, head, :, own]
    old = jnp.broadcast_to(start > 0, (sizes.key_dim, columns))
    row = lax.broadcasted_iota(jnp.int32, (CHUNK_TOKENS,), 0)
    at_columns, halves = head * sizes.value_dim + part * columns, given.solve.shape[2]

    def one(chunk: jax.Array, state: jax.Array) -> jax.Array:
        query, key = given.keys[chunk, key_head, :, :], given.keys[chunk, sizes.key_heads + key_head, :, :]
        since_start, to_end = given.since_start[chunk, head, :], given.to_end[chunk, head, :]
        held = _halves(state, halves)
        target = given.value[chunk, head, :, own].astype(jnp.float32) - since_start[:, None] * _product([key], held)
        solve = [given.solve[chunk, head, half, :, :] for half in range(halves)]
        writes = _product(solve, _halves(target, halves))
        out = plt.dot(query, held[0]) * (since_start * sizes.key_dim**-0.5)[:, None]
        out = out + plt.dot(given.inside[chunk, head, :, :], writes.astype(jnp.float16))
        tokens, here = pl.ds(chunk * CHUNK_TOKENS, CHUNK_TOKENS), pl.ds(at_columns, columns)
        out_ref[tokens, here] = to_dtype(out, _F16)
        decay = jnp.sum(jnp.where(row == CHUNK_TOKENS - 1, since_start, 0.0))
        written = _product([key], _halves(writes * to_end[:, None], halves), trans_a=True)
        after: jax.Array = state * decay + written
        return after

    state = plt.load(matrix, mask=old, other=0.0)
    plt.store(matrix, lax.fori_loop(0, pl.cdiv(count, CHUNK_TOKENS), one, state))

    # The ring: what the last four tokens put into the convolution. One program of each head, one head of each share.
    first = part == 0
    keep = functools.partial(_keep, projected_ref, conv_ref, layer, slot, start, count)
    keep(2 * sizes.keys + head * sizes.value_dim, sizes.value_dim, first)
    first = first & (lax.rem(head, sizes.share) == 0)
    keep(key_head * sizes.key_dim, sizes.key_dim, first)
    keep(sizes.keys + key_head * sizes.key_dim, sizes.key_dim, first)


def _keep(
    projected_ref: Ref,
    conv_ref: Ref,
    layer: jax.Array,
    slot: jax.Array,
    start: jax.Array,
    count: jax.Array,
    first: jax.Array,
    width: int,
    mine: jax.Array,
) -> None:
    for back in range(1, CONV_TAPS + 1):
        mask = jnp.broadcast_to(mine & (count >= back), (width,))
        newest = plt.load(projected_ref.at[jnp.maximum(count - back, 0), pl.ds(first, width)], mask=mask, other=0.0)
        ring_row = lax.rem(start + count - back + CONV_TAPS, CONV_TAPS)
        plt.store(conv_ref.at[layer, slot, ring_row, pl.ds(first, width)], newest.astype(jnp.float32), mask=mask)


# ------------------------------------------------------------------ 4. the output norm


def _finish(
    out: jax.Array,
    projected: jax.Array,
    weights: GdnWeights,
    place: _Place,
    sizes: GdnSizes,
    eps: float,
    out_dtype: jnp.dtype,
    options: GdnChunkOptions,
    interpret: bool,
) -> jax.Array:
    operands = (place.layer, place.tokens, out, projected, weights.norm)
    result: jax.Array = pl.pallas_call(
        functools.partial(_finish_kernel, width=sizes.value_dim, channels=sizes.channels, eps=eps),
        grid=(out.shape[0] // CHUNK_TOKENS, sizes.value_heads),
        in_specs=[whole(operand) for operand in operands],
        out_specs=whole(out),
        out_shape=jax.ShapeDtypeStruct(out.shape, out_dtype),
        compiler_params=plt.CompilerParams(num_warps=options.finish_warps, num_stages=1),
        interpret=interpret,
        name="gdn_finish",
    )(*operands)
    return result


def _finish_kernel(
    layer_ref: Ref,
    count_ref: Ref,
    out_ref: Ref,
    projected_ref: Ref,
    gain_ref: Ref,
    result_ref: Ref,
    *,
    width: int,
    channels: int,
    eps: float,
) -> None:
    chunk, head = pl.program_id(0), pl.program_id(1)
    tokens = pl.ds(chunk * CHUNK_TOKENS, CHUNK_TOKENS)
    here = tokens, pl.ds(head * width, width)
    token = chunk * CHUNK_TOKENS + lax.broadcasted_iota(jnp.int32, (CHUNK_TOKENS, width), 0)
    real = token < count_ref[0]  # nobody wrote the chunks behind the last
    out = plt.load(out_ref.at[here], mask=real, other=0.0).astype(jnp.float32)
    gate = plt.load(projected_ref.at[tokens, pl.ds(channels + head * width, width)], mask=real, other=0.0).astype(
        jnp.float32
    )
    mean_square = jnp.sum(out * out, axis=1) * (1.0 / width)
    gated = out * lax.rsqrt(mean_square + eps)[:, None] * gain_ref[layer_ref[0], :][None, :] * silu(gate)
    result_ref[here] = to_dtype(gated, result_ref.dtype)
