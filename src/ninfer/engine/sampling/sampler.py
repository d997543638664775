"""From rows of logits to one token each.

The order is fixed (model facts, section 11): penalties on logits; the `top_k` best, never more than 20; softmax at the
temperature; min-p against the best; the shortest prefix that reaches top-p of what the softmax gave; one draw over what
is left. Temperature 0 takes the lowest id among the maxima of the penalised logits. Each row is computed by itself:
selections and sums of fixed order, so the number of rows changes no bit.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ninfer.engine.model.elementary import exp
from ninfer.engine.model.reduce import rounded, tree_sum
from ninfer.engine.sampling.counter_random import Purpose, uniform
from ninfer.engine.types import MAX_CANDIDATES


class SamplerRows(NamedTuple):
    """A resolved sampler per row, arrays [R]."""

    temperature: jax.Array
    """float32; 0 is greedy"""
    top_k: jax.Array
    """int32, 0 means the cap"""
    top_p: jax.Array
    """float32"""
    min_p: jax.Array
    """float32"""
    presence_penalty: jax.Array
    """float32"""
    frequency_penalty: jax.Array
    """float32"""
    seed_low: jax.Array
    """uint32"""
    seed_high: jax.Array
    """uint32"""
    position: jax.Array
    """int32: position that the chosen token will have"""


class Chosen(NamedTuple):
    """One token per row, arrays [R]."""

    token: jax.Array
    """int32"""
    faulty: jax.Array
    """bool: the row's logits were not finite, its token means nothing"""


def penalise(logits: jax.Array, counts: jax.Array, rows: SamplerRows) -> jax.Array:
    """logits float32 [R, V] less presence (once) and frequency (each time) of generated tokens, counts int32 [R, V]."""
    presence = rows.presence_penalty[:, None] * (counts > 0).astype(jnp.float32)
    frequency = rounded(rows.frequency_penalty[:, None] * counts.astype(jnp.float32))
    return logits - (presence + frequency)


def candidate_weights(best: jax.Array, rows: SamplerRows) -> jax.Array:
    """Unnormalised probabilities [R, n] of the best penalised logits [R, n], sorted downwards; 0 means excluded."""
    rank = jnp.arange(best.shape[-1])
    limit = jnp.where(rows.top_k == 0, MAX_CANDIDATES, jnp.minimum(rows.top_k, MAX_CANDIDATES))
    allowed = (rank[None, :] < limit[:, None]) & (best > -jnp.inf)
    temperature = jnp.where(rows.temperature > 0, rows.temperature, 1.0)
    scaled = (best - best[:, :1]) / temperature[:, None]
    weights = jnp.where(allowed, exp(scaled), 0.0)
    weights = weights / tree_sum(weights)[:, None]
    weights = jnp.where(weights >= rows.min_p[:, None] * weights[:, :1], weights, 0.0)
    before = jnp.pad(_running_sum(weights)[:, :-1], ((0, 0), (1, 0)))
    return jnp.where((before < rows.top_p[:, None]) | (rank == 0), weights, 0.0)


def choose(logits: jax.Array, counts: jax.Array, rows: SamplerRows, used_tokens: int | None = None) -> Chosen:
    """One token per row of logits [R, V]; counts int32 [R, V] of the tokens generated so far.

    Ids from `used_tokens` on are rows without a token: they are -inf by right and are not looked at.
    """
    used = logits.shape[-1] if used_tokens is None else min(used_tokens, logits.shape[-1])
    logits = logits[:, :used].astype(jnp.float32)
    faulty = ~jnp.all(jnp.isfinite(logits), axis=-1)
    found = lax.top_k(penalise(logits, counts[:, :used], rows), min(MAX_CANDIDATES, used))
    # Without the barrier XLA merges later slices into the selection and then sorts the whole vocabulary (100x).
    best, ids = lax.optimization_barrier(found)
    return draw(best, ids, faulty, rows)


def draw(best: jax.Array, ids: jax.Array, faulty: jax.Array, rows: SamplerRows) -> Chosen:
    """One token per row of its best penalised logits [R, n], n at most 20, and their ids [R, n]; faulty bool [R].

    They are sorted downwards and equal values come lowest id first, so the greedy token is the first candidate.
    """
    weights = candidate_weights(best, rows)
    reached = _running_sum(weights)
    number = uniform(rows.seed_low, rows.seed_high, rows.position, Purpose.TOKEN)
    passed = (reached <= (number * reached[:, -1])[:, None]).astype(jnp.int32)
    last = jnp.sum((weights > 0).astype(jnp.int32), axis=-1) - 1  # rounding must not push the draw off the end
    drawn = jnp.minimum(jnp.sum(passed, axis=-1), last)
    index = jnp.where((rows.temperature > 0) & ~faulty, drawn, 0)
    return Chosen(jnp.take_along_axis(ids, index[:, None], axis=-1)[:, 0], faulty)


def _running_sum(x: jax.Array) -> jax.Array:
    """Sums of x [R, n] up to each place, in the one order that is written here."""
    sums: jax.Array = lax.associative_scan(jnp.add, x, axis=-1)
    return sums
