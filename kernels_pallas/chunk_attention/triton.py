"""Attention of a prompt chunk over paged keys, Pallas-Triton: online softmaxes page by page, tiles of one query head.

Grid (query head, tile of rows, segment of keys), the longest tiles first. Pages before the tile are seen whole; those
under it are masked. A page without a visible key changes no bit of a row, so a row does not depend on its neighbours in
the tile. Scales of 8-bit codes multiply logits and probabilities, never tiles.

Three forms with the same bits: one softmax where the table has no second segment; one program that walks the segments
and merges into float32 sums in memory; or, where the tiles alone leave the GPU idle, a program for each segment and a
second kernel that merges (`triton_segments`).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.blocks import whole
from kernels_pallas.chunk_attention.triton_segments import HIDDEN, State, finish, merge, start, sum_segments
from kernels_pallas.chunk_attention.tuning import STREAMING_MULTIPROCESSORS, TUNING, ChunkTuning
from kernels_pallas.kv_cache.codes import operand_dtype, power_of_two, widen
from kernels_pallas.kv_cache.formats import StorageFormat
from kernels_pallas.kv_cache.pool import PAGE_TOKENS, KvPool

_LOG2_E = 1.4426950408889634
_VALUE_LIFT = 256.0
"""Probabilities times value scales are float16 operands; this keeps scales of small values out of its subnormals."""
_F16_MAX = 65504.0


class _Job(NamedTuple):
    """What a kernel is compiled for."""

    fmt: StorageFormat
    rows: int
    cut: ChunkTuning
    form: str
    exact: bool


def attend_chunk(
    query: jax.Array,
    pool: KvPool,
    layer: jax.Array,
    pages: jax.Array,
    first: jax.Array,
    count: jax.Array,
    *,
    split_workspace_bytes: int,
    tuning: ChunkTuning | None = None,
    interpret: bool = False,
) -> jax.Array:
    """See the package."""
    if pool.format not in TUNING:
        raise NotImplementedError(f"the chunk kernel reads {', '.join(TUNING)}, not {pool.format}")
    tokens, queries, width = query.shape
    if width & (width - 1) or tokens % PAGE_TOKENS:
        raise NotImplementedError(f"head width {width} is no power of two, or {tokens} tokens are no multiple of 64")
    cut = tuning or TUNING[pool.format]
    rows = cut.rows if tokens % cut.rows == 0 else PAGE_TOKENS
    segments = -(-pages.shape[0] * PAGE_TOKENS // cut.segment_tokens)
    form = choose_form(tokens // rows, segments, query.shape, split_workspace_bytes)
    span = jnp.stack([jnp.asarray(first, jnp.int32), jnp.asarray(count, jnp.int32)])
    inputs = (query, layer, pages, span, *pool.arrays())
    result = jax.ShapeDtypeStruct(query.shape, query.dtype)
    parts = segments if form == "split" else 1
    state = [
        jax.ShapeDtypeStruct((parts, *query.shape), jnp.float32),
        jax.ShapeDtypeStruct((parts, 2, tokens, queries), jnp.float32),
    ]
    outputs = {"one": [result], "walk": [result, *state], "split": state}[form]
    job = _Job(pool.storage, rows, cut, form, interpret)
    out, *rest = pl.pallas_call(
        functools.partial(_kernel, job=job),
        grid=(queries, tokens // rows, parts),
        in_specs=[whole(array) for array in inputs],
        out_specs=[whole(array) for array in outputs],
        out_shape=outputs,
        compiler_params=plt.CompilerParams(num_warps=cut.warps * rows // cut.rows, num_stages=cut.stages),
        interpret=interpret,
        name="attend_chunk",
    )(*inputs)
    if form != "split":
        attended: jax.Array = out
        return attended
    return sum_segments(out, rest[0], span, query.dtype, segment_tokens=cut.segment_tokens, interpret=interpret)


def choose_form(tiles: int, segments: int, shape: tuple[int, ...], split_workspace_bytes: int) -> str:
    """ "one", "walk" or "split" for so many tiles of query rows, segments of keys and a query [T, h, d]."""
    tokens, queries, width = shape
    if segments == 1:
        return "one"
    partials = segments * tokens * queries * (width + 2) * 4
    return "split" if tiles * queries < STREAMING_MULTIPROCESSORS and partials <= split_workspace_bytes else "walk"


def _kernel(query: Any, layer: Any, pages: Any, span: Any, *refs: Any, job: _Job) -> None:
    arrays = 4 if job.fmt.scaled else 2
    pool, results = refs[:arrays], refs[arrays:]
    head, part = pl.program_id(0), pl.program_id(2)
    local = (pl.num_programs(1) - 1 - pl.program_id(1)) * job.rows  # long tiles first: short ones fill the gaps
    first, count = span[0] + local, span[1]
    last = jnp.minimum(first + job.rows, span[0] + count) - 1
    mine = (pl.ds(local, job.rows), head, slice(None))
    place = (layer[0], pages, lax.div(head, query.shape[1] // pool[0].shape[2]))

    def softmax(segment: jax.Array) -> State:
        tile = query[mine].astype(operand_dtype(job.fmt))
        return _attend(tile, pool, place, (first, last), segment, job)

    if job.form == "split":

        @pl.when((local < count) & (part * job.cut.segment_tokens <= last))
        def _() -> None:
            _put(results, part, mine, softmax(part))

        return

    final = lax.div(last, job.cut.segment_tokens)

    @pl.when((local < count) & (final == 0))
    def _() -> None:
        done, _, total = softmax(jnp.int32(0))
        results[0][mine] = finish((done, total)).astype(results[0].dtype)

    if job.form == "walk":  # apart from a single segment, which needs no sums and no registers for them
        pl.when((local < count) & (final > 0))(lambda: _walk(softmax, final, results, mine, job))

    @pl.when(local >= count)
    def _() -> None:
        results[0][mine] = jnp.zeros((job.rows, query.shape[2]), results[0].dtype)


def _walk(softmax: Any, final: jax.Array, results: Any, mine: tuple[Any, ...], job: _Job) -> None:
    """Merge segments 0 .. final, with the sums so far in memory: registers hold one segment's."""
    out, *sums = results

    def step(segment: jax.Array, carry: jax.Array) -> jax.Array:
        later = softmax(segment)  # before the earlier sums are read: both at once are more than the registers
        state = merge(_get(sums, mine, segment > 0), later, exact=job.exact)

        @pl.when(segment == final)
        def _() -> None:
            out[mine] = finish((state[0], state[2])).astype(out.dtype)

        @pl.when(segment != final)
        def _() -> None:
            _put(sums, 0, mine, state)
            if not job.exact:
                plt.debug_barrier()  # another thread may read it back

        return carry

    lax.fori_loop(0, final + 1, step, jnp.int32(0))


def _put(results: Any, part: Any, mine: tuple[Any, ...], state: State) -> None:
    sums, logs = results
    sums[(part, *mine)] = state[0]
    logs[(part, 0, *mine[:2])] = state[1]
    logs[(part, 1, *mine[:2])] = state[2]


def _get(results: Any, mine: tuple[Any, ...], there: jax.Array) -> State:
    """What `_put` left as part 0, or a start where nothing is `there`."""
    sums, logs = results
    rows = mine[0].size
    tokens = mine[0].start + lax.broadcasted_iota(jnp.int32, (rows,), 0)
    dims = lax.broadcasted_iota(jnp.int32, (1, sums.shape[3]), 1)
    each = jnp.broadcast_to(there, (rows,))
    return (
        plt.load(
            sums.at[0, tokens[:, None], mine[1], dims], mask=jnp.broadcast_to(there, (rows, dims.size)), other=0.0
        ),
        plt.load(logs.at[0, 0, tokens, mine[1]], mask=each, other=HIDDEN),
        plt.load(logs.at[0, 1, tokens, mine[1]], mask=each, other=0.0),
    )


def _attend(
    query: jax.Array,
    pool: Any,
    place: tuple[Any, ...],
    span: tuple[jax.Array, jax.Array],
    segment: jax.Array,
    job: _Job,
) -> State:
    """Rows at positions first, first + 1, ... over the keys of a segment up to each and up to `last`."""
    layer, pages, head = place
    first, last = span
    rows, width = query.shape
    fmt, block, exact = job.fmt, job.cut.block_tokens, job.exact
    steps = PAGE_TOKENS // block
    scale = width**-0.5 * _LOG2_E
    positions = jnp.minimum(first + lax.broadcasted_iota(jnp.int32, (rows, block), 0), last)

    def step(number: jax.Array, state: State, masked: bool) -> State:
        done, best, total = state
        page = pages[lax.div(number, steps)]
        tokens = pl.ds(lax.rem(number, steps) * block, block)
        logits = plt.dot(query, widen(pool[0][layer, page, head, tokens, :], fmt, exact=exact).T)
        logits = logits * (pool[2][layer, page, head, tokens] * scale)[None, :] if fmt.scaled else logits * scale
        if masked:
            seen = number * block + lax.broadcasted_iota(jnp.int32, (rows, block), 1)
            logits = jnp.where(seen <= positions, logits, HIDDEN)
        higher = jnp.maximum(best, jnp.max(logits, axis=1))
        keep = power_of_two(best - higher, exact=exact)
        shares = power_of_two(logits - higher[:, None], exact=exact)
        total = total * keep + jnp.sum(shares, axis=1)
        if fmt.scaled:
            lifted = pool[3][layer, page, head, tokens] * _VALUE_LIFT
            shares = jnp.minimum(shares * lifted[None, :], _F16_MAX)
        value = widen(pool[1][layer, page, head, :, tokens], fmt, exact=exact)
        return done * keep[:, None] + plt.dot(shares.astype(query.dtype), value.T), higher, total

    begin = segment * (job.cut.segment_tokens // block)
    end = jnp.minimum(begin + job.cut.segment_tokens // block, lax.div(last, block) + 1)
    whole = jnp.clip(lax.div(first, block), begin, end)  # all before the tile: it starts at a page
    state = lax.fori_loop(begin, whole, functools.partial(step, masked=False), start(rows, width))
    done, best, total = lax.fori_loop(whole, end, functools.partial(step, masked=True), state)
    return (done * (1.0 / _VALUE_LIFT) if fmt.scaled else done), best, total
