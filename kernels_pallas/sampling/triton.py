"""The best few tokens of a row without sorting the vocabulary, in two launches. Pallas-Triton.

The first launch takes the best n of every block of the vocabulary, penalties included; the second takes the best n of
those. Both take the maximum n times, and among equal ones the lowest id. Floats are compared as integers of the same
order, which orders NaN and the two zeros too, as XLA's selection does.

Invariant: nothing is added up, so the result is exactly that of the reference.
"""

import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.sampling.best import Best
from kernels_pallas.sampling.reference import penalty
from kernels_pallas.sampling.tuning import DEFAULT, BestOptions

Ref: TypeAlias = Any
"""An array in device memory as a kernel sees it: jax has no public type for it."""

_LEAST, _NO_ID = -(1 << 31), (1 << 31) - 1


def best_tokens_triton(
    logits: jax.Array,
    counts: jax.Array,
    slots: jax.Array,
    presence: jax.Array,
    frequency: jax.Array,
    *,
    used_tokens: int,
    candidates: int,
    options: BestOptions = DEFAULT,
    interpret: bool = False,
) -> Best:
    """See `kernels_pallas.sampling.best_tokens`."""
    rows = logits.shape[0]
    width = pl.next_power_of_2(candidates)
    block = max(width, min(options.block, pl.next_power_of_2(used_tokens)))
    blocks = pl.cdiv(used_tokens, block)

    def ints(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.int32)

    keys, ids, faults = pl.pallas_call(
        functools.partial(_best_of_block, used=used_tokens, block=block, candidates=candidates, width=width),
        grid=(blocks, rows),
        out_shape=[ints(rows, blocks * width), ints(rows, blocks * width), ints(rows, blocks)],
        compiler_params=plt.CompilerParams(num_warps=options.num_warps, num_stages=1),
        interpret=interpret,
        name="best_of_block",
    )(logits, counts, slots, presence, frequency)
    values, ids, faulty = pl.pallas_call(
        functools.partial(_best_of_best, candidates=candidates, width=width),
        grid=(rows,),
        out_shape=[
            jax.ShapeDtypeStruct((rows, candidates), jnp.float32), ints(rows, candidates),
            jax.ShapeDtypeStruct((rows,), jnp.bool_),
        ],
        compiler_params=plt.CompilerParams(num_warps=options.merge_warps, num_stages=1),
        interpret=interpret,
        name="best_of_best",
    )(keys, ids, faults)  # fmt: skip
    return Best(values=values, ids=ids, faulty=faulty)


def _best_of_block(
    logits_ref: Ref,
    counts_ref: Ref,
    slots_ref: Ref,
    presence_ref: Ref,
    frequency_ref: Ref,
    keys_ref: Ref,
    ids_ref: Ref,
    faults_ref: Ref,
    *,
    used: int,
    block: int,
    candidates: int,
    width: int,
) -> None:
    at, row = pl.program_id(0), pl.program_id(1)
    ids = at * block + lax.broadcasted_iota(jnp.int32, (block,), 0)
    inside = ids < used
    slot = jnp.maximum(slots_ref[row], 0)
    piece = pl.ds(at * block, block)
    logits = plt.load(logits_ref.at[row, piece], mask=inside, other=0.0).astype(jnp.float32)
    counts = plt.load(counts_ref.at[slot, piece], mask=inside, other=0)
    faults_ref[row, at] = jnp.max((~(jnp.abs(logits) < jnp.inf)).astype(jnp.int32))
    penalised = logits - penalty(counts, presence_ref[row], frequency_ref[row])
    keys = jnp.where(inside, _in_order(penalised), _LEAST)
    best_keys, best_ids = _best(keys, ids, candidates, width)
    keys_ref[row, pl.ds(at * width, width)] = best_keys
    ids_ref[row, pl.ds(at * width, width)] = best_ids


def _best_of_best(
    keys_ref: Ref,
    ids_ref: Ref,
    faults_ref: Ref,
    values_out: Ref,
    ids_out: Ref,
    faulty_out: Ref,
    *,
    candidates: int,
    width: int,
) -> None:
    row = pl.program_id(0)
    total, blocks = keys_ref.shape[1], faults_ref.shape[1]
    index = lax.broadcasted_iota(jnp.int32, (pl.next_power_of_2(total),), 0)
    everything = pl.ds(0, index.shape[0])
    keys = plt.load(keys_ref.at[row, everything], mask=index < total, other=_LEAST)
    ids = plt.load(ids_ref.at[row, everything], mask=index < total, other=_NO_ID)
    best_keys, best_ids = _best(keys, ids, candidates, width)
    rank = lax.broadcasted_iota(jnp.int32, (width,), 0)
    plt.store(values_out.at[row, pl.ds(0, width)], _from_order(best_keys), mask=rank < candidates)
    plt.store(ids_out.at[row, pl.ds(0, width)], best_ids, mask=rank < candidates)
    fault = lax.broadcasted_iota(jnp.int32, (pl.next_power_of_2(blocks),), 0)
    faults = plt.load(faults_ref.at[row, pl.ds(0, fault.shape[0])], mask=fault < blocks, other=0)
    faulty_out[row] = jnp.max(faults) > 0


def _best(keys: jax.Array, ids: jax.Array, candidates: int, width: int) -> tuple[jax.Array, jax.Array]:
    """The largest `candidates` of keys [n] with their ids: two of [width], largest first, filled with the least."""
    rank = lax.broadcasted_iota(jnp.int32, (width,), 0)

    def take(at: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        keys, best_keys, best_ids = carry
        key = jnp.max(keys)
        chosen = jnp.min(jnp.where(keys == key, ids, _NO_ID))
        here = rank == at
        best_keys, best_ids = jnp.where(here, key, best_keys), jnp.where(here, chosen, best_ids)
        return jnp.where(ids == chosen, _LEAST, keys), best_keys, best_ids

    none = jnp.full((width,), _LEAST, jnp.int32), jnp.full((width,), _NO_ID, jnp.int32)
    _, best_keys, best_ids = lax.fori_loop(0, candidates, take, (keys, *none))
    return best_keys, best_ids


def _in_order(x: jax.Array) -> jax.Array:
    """float32 -> int32 that compare alike: a negative number's magnitude bits are turned round."""
    bits = lax.bitcast_convert_type(x, jnp.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _from_order(keys: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(keys ^ ((keys >> 31) & 0x7FFFFFFF), jnp.float32)
