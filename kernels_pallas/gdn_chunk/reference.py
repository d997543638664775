"""The meaning of the delta net over many tokens of one sequence in plain jnp, float32, 64 tokens at a time.

Inside a chunk with starting state S, cumulated log decay G and strictly lower triangular A:

    A[t, i] = beta_t exp(G_t - G_i) k_t . k_i;    (I + A) U = beta (V - exp(G) K S)
    O = exp(G) Q S + lower(Q K^T exp(G_t - G_i)) U;    S <- exp(G_last) S + (exp(G_last - G) K)^T U

Chunks are computed one after the other on the absolute grid of 64 tokens, so the number of tokens changes no bit of a
row: nothing here has a shape with T in it but the input and the output.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kernels_pallas.gdn_step.reference import gated_norm, gates, silu, split_heads, to_dtype
from kernels_pallas.gdn_step.state import CONV_TAPS, GdnSizes, GdnState, GdnWeights, sizes_of

CHUNK_TOKENS = 64


class Rows(NamedTuple):
    """One chunk of the inputs; rows past the end change nothing."""

    mixed: jax.Array
    """[64, C]"""
    z: jax.Array
    """[64, Hv dv]"""
    a: jax.Array
    """[64, Hv]"""
    b: jax.Array
    """[64, Hv]"""
    real: jax.Array
    """bool [64]"""


class Carry(NamedTuple):
    """What a chunk hands to the next."""

    recurrent: jax.Array
    """[Hv, dk, dv]"""
    history: jax.Array
    """[3, C]: the last inputs of the convolution, the newest last"""


def gdn_chunk_reference(
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
) -> tuple[jax.Array, GdnState]:
    """See `kernels_pallas.gdn_chunk.gdn_chunk`."""
    sizes = sizes_of(state)
    at, slot, start, count = (jnp.reshape(scalar, ()) for scalar in (layer, slot, start, count))
    tokens = projected.shape[0]
    mixed, z = jnp.split(projected, [sizes.channels], axis=-1)
    a, b = jnp.split(scores, 2, axis=-1)
    rows = Rows(mixed, z, a, b, jnp.arange(tokens) < count)
    own = jax.tree.map(lambda stack: stack[at], weights)
    ring = state.conv[at, slot]
    history = [jnp.where(start >= back, ring[(start - back) % CONV_TAPS], 0.0) for back in range(CONV_TAPS - 1, 0, -1)]
    before = Carry(jnp.where(start > 0, state.recurrent[at, slot], 0.0), jnp.stack(history))

    def one(carry: Carry, rows: Rows) -> tuple[Carry, jax.Array]:
        return _chunk(sizes, own, eps, carry, rows)

    cut = jax.tree.map(lambda x: x.reshape(tokens // CHUNK_TOKENS, CHUNK_TOKENS, *x.shape[1:]), rows)
    after, out = lax.scan(one, before, cut)
    changed = GdnState(
        recurrent=state.recurrent.at[at, slot].set(after.recurrent),
        conv=state.conv.at[at, slot].set(ring_after(ring, mixed.astype(jnp.float32), start, count)),
    )
    return to_dtype(out.reshape(z.shape), out_dtype), changed


def ring_after(ring: jax.Array, mixed: jax.Array, start: jax.Array, count: jax.Array) -> jax.Array:
    """The ring [4, C] after the first `count` of mixed [T, C]; inputs that it no longer needs may stay."""
    for back in range(1, CONV_TAPS + 1):
        newest = mixed[jnp.maximum(count - back, 0)]
        row = (start + count - back) % CONV_TAPS
        ring = ring.at[row].set(jnp.where(count >= back, newest, ring[row]))
    return ring


def _chunk(sizes: GdnSizes, weights: GdnWeights, eps: float, carry: Carry, rows: Rows) -> tuple[Carry, jax.Array]:
    """64 tokens of one layer: weights of that layer alone."""
    joined = jnp.concatenate([carry.history, rows.mixed.astype(jnp.float32)])
    parts = [joined[tap : tap + CHUNK_TOKENS] * weights.conv[tap] for tap in range(CONV_TAPS)]
    query, key, value = split_heads(silu(sum(parts[1:], start=parts[0])), sizes)
    log_decay, beta = gates(rows.a, rows.b, weights.a_log, weights.dt_bias)
    real = rows.real[:, None]
    key, value = jnp.where(real[..., None], key, 0.0), jnp.where(real[..., None], value, 0.0)
    log_decay, beta = jnp.where(real, log_decay, 0.0), jnp.where(real, beta, 0.0)
    by_head = (jnp.swapaxes(part, 0, 1) for part in (query, key, value, log_decay, beta))
    recurrent, out = delta_rule(carry.recurrent, *by_head)
    out = jnp.swapaxes(out, 0, 1)  # [64, Hv, dv]
    gated = gated_norm(out, rows.z.astype(jnp.float32).reshape(out.shape), weights.norm, eps)
    return Carry(recurrent, joined[CHUNK_TOKENS:]), jnp.where(real, gated.reshape(rows.z.shape), 0.0)


def delta_rule(
    state: jax.Array, query: jax.Array, key: jax.Array, value: jax.Array, log_decay: jax.Array, beta: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """state [Hv, dk, dv] before 64 tokens, everything else [Hv, 64, ...] -> state after them, output [Hv, 64, dv]."""
    decay = jnp.cumsum(log_decay, axis=-1)
    lower = jnp.tril(jnp.ones((CHUNK_TOKENS, CHUNK_TOKENS), bool))
    # The mask is inside the exponential: above the diagonal the difference is positive and would overflow.
    ratio = jnp.exp(jnp.where(lower, decay[..., :, None] - decay[..., None, :], -jnp.inf))
    since_start = jnp.exp(decay)[..., None]
    overlap = jnp.where(jnp.tril(lower, -1), beta[..., None] * _times(key, jnp.swapaxes(key, -1, -2)) * ratio, 0.0)
    target = beta[..., None] * (value - since_start * _times(key, state))
    writes = jax.scipy.linalg.solve_triangular(overlap, target, lower=True, unit_diagonal=True)
    inside = _times(query, jnp.swapaxes(key, -1, -2)) * ratio
    out = since_start * _times(query, state) + _times(inside, writes)
    to_end = jnp.exp(decay[..., -1:] - decay)[..., None]
    state = jnp.exp(decay[..., -1])[..., None, None] * state + _times(jnp.swapaxes(key * to_end, -1, -2), writes)
    return state, out


def _times(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)
