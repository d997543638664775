"""Softmaxes over segments of the keys and their sum, for the chunk kernels.

Segments are cut at fixed positions, so whether one program walks them all or each has its own, a row's sums are the
same numbers added in the same order by the same function, `merge`. That is why splitting a short chunk's keys over the
GPU changes no bit.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt
from jax.typing import DTypeLike

from kernels_pallas.blocks import whole
from kernels_pallas.kv_cache.codes import power_of_two

HIDDEN = -1e30
State = tuple[jax.Array, jax.Array, jax.Array]
"""Softmax in progress: sums of values [rows, d], best logits (base 2) and totals [rows]."""

_ROWS = 8
_WARPS = 4


def merge(earlier: State, later: State, *, exact: bool) -> State:
    """Both as one. What saw no key has a best of `HIDDEN` and changes no bit of the other."""
    best = jnp.maximum(earlier[1], later[1])
    old, new = power_of_two(earlier[1] - best, exact=exact), power_of_two(later[1] - best, exact=exact)
    return (
        earlier[0] * old[:, None] + later[0] * new[:, None],
        best,
        earlier[2] * old + later[2] * new,
    )


def start(rows: int, width: int) -> State:
    """No key seen."""
    return (
        jnp.zeros((rows, width), jnp.float32),
        jnp.full((rows,), HIDDEN, jnp.float32),
        jnp.zeros((rows,), jnp.float32),
    )


def sum_segments(
    sums: jax.Array, logs: jax.Array, span: jax.Array, dtype: DTypeLike, *, segment_tokens: int, interpret: bool
) -> jax.Array:
    """Merge sums float32 [S, T, h, d] and logs float32 [S, 2, T, h] (best logits, totals): [T, h, d].

    span int32 [2]: position of row 0 and count of real rows; the others become zeros.
    """
    segments, tokens, queries, width = sums.shape
    flat = (span, sums.reshape(segments, tokens * queries, width), logs.reshape(segments, 2, tokens * queries))
    out = jax.ShapeDtypeStruct((tokens * queries, width), dtype)
    merged: jax.Array = pl.pallas_call(
        functools.partial(_kernel, queries=queries, segment_tokens=segment_tokens, exact=interpret),
        grid=(tokens * queries // _ROWS,),
        in_specs=[whole(array) for array in flat],
        out_specs=whole(out),
        out_shape=out,
        compiler_params=plt.CompilerParams(num_warps=_WARPS, num_stages=1),
        interpret=interpret,
        name="sum_segments",
    )(*flat)
    return merged.reshape(tokens, queries, width)


def _kernel(span: Any, sums: Any, logs: Any, out: Any, *, queries: int, segment_tokens: int, exact: bool) -> None:
    width = sums.shape[2]
    row = pl.program_id(0) * _ROWS + lax.broadcasted_iota(jnp.int32, (_ROWS,), 0)
    token = lax.div(row, queries)
    real = token < span[1]
    used = jnp.where(real, lax.div(span[0] + token, segment_tokens) + 1, 0)
    at = (row[:, None], lax.broadcasted_iota(jnp.int32, (1, width), 1))

    def step(number: jax.Array, state: State) -> State:
        mine = number < used
        whole = jnp.broadcast_to(mine[:, None], (_ROWS, width))
        later = (
            plt.load(sums.at[(number, *at)], mask=whole, other=0.0),
            plt.load(logs.at[number, 0, row], mask=mine, other=HIDDEN),
            plt.load(logs.at[number, 1, row], mask=mine, other=0.0),
        )
        return merge(state, later, exact=exact)

    done, _, total = lax.fori_loop(0, jnp.max(used, axis=0), step, start(_ROWS, width))
    out[pl.ds(pl.program_id(0) * _ROWS, _ROWS), :] = finish((done, total), real).astype(out.dtype)


def finish(state: tuple[jax.Array, jax.Array], real: jax.Array | None = None) -> jax.Array:
    """Sums over totals; zeros where a row is not real."""
    done, total = state
    if real is not None:
        total = jnp.where(real, total, 1.0)
    return done * (1.0 / total)[:, None]
