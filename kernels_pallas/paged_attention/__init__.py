"""Attention of a decode step over paged keys, in two kernels.

`attend_rows` norms and rotates queries and the new key, writes the new key and value into the pool and attends within
splits of the keys; `combine` sums the splits and multiplies by the sigmoid of the gate. Between them lie `Partials`.

Invariant: a row's result depends on its own numbers and keys alone, not on how many rows there are or on theirs.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from kernels_pallas.arrays import Activation
from kernels_pallas.dispatch import Impl, choose
from kernels_pallas.kv_cache import KvPool
from kernels_pallas.paged_attention import reference, triton, triton_combine
from kernels_pallas.paged_attention.partials import Partials

__all__ = ["Partials", "attend_rows", "combine"]


def attend_rows(
    projected: jax.Array,
    pool: KvPool,
    norms: tuple[jax.Array, jax.Array],
    layer: jax.Array,
    tables: jax.Array,
    positions: jax.Array,
    cos: jax.Array,
    sin: jax.Array,
    *,
    eps: float,
    impl: Impl = "auto",
) -> tuple[Partials, KvPool]:
    """Attend from new tokens of some lanes; their keys and values join the pool (in place where it is donated).

    M rows are the same number of rows of each lane, usually 1, at most 16 (to verify drafts), one lane after the other.
    A lane's rows have consecutive positions and see each other's keys up to their own; its padding comes last.

    projected float32 [M, 2 * h * d + 2 * kv * d]: per query head d query and d gate columns, then keys, then values;
    norms: gains of queries and keys, float32 [L, d] each (1 + weight); layer int32 [1]; tables int32 [lanes, P] page
    numbers; positions int32 [M] of the new tokens (negative: padding, which reads and writes nothing); cos
    and sin float32 [M, rotary / 2]. Two lanes of one call must not write into the same page.

    Raises:
        ValueError: there is no implementation of that name.
        NotImplementedError: the kernel cannot do this shape or format; the message says which.
    """
    attend = choose(impl, {"reference": reference.attend_rows, "triton": triton.attend_rows})
    return attend(projected, pool, norms, layer, tables, positions, cos, sin, eps=eps)


def combine(
    partials: Partials, projected: jax.Array, *, out_dtype: DTypeLike = jnp.bfloat16, impl: Impl = "auto"
) -> Activation:
    """Sum the splits and gate them: values out_dtype [M, h * d], not normalised, shift 0; zeros for padding.

    projected: the same array as for `attend_rows`, for its gates.

    Raises:
        ValueError: there is no implementation of that name.
    """
    summed = choose(impl, {"reference": reference.combine, "triton": triton_combine.combine})
    return Activation(values=summed(partials, projected, out_dtype))
