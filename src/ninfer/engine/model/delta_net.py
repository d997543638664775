"""The gated delta net: convolution, gates, and the delta rule in its chunked and its recurrent form.

Per value head with state S [dk, dv], log decay g <= 0 and write strength beta:

    S <- exp(g) S;   u = beta (v - S^T k);   S <- S + k u^T;   o = S^T q

Prompt tokens take the chunked form (64 tokens at a time), generated ones the recurrent form; the two agree to about
1e-6, not in bits. Symbols: R rows, T tokens, C convolution channels, Hv value heads, c the 64 tokens of a chunk.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ninfer.engine.model.config import CONV_TAPS, TextConfig
from ninfer.engine.model.elementary import exp, sigmoid, silu, softplus
from ninfer.engine.model.norms import gated_rms_norm, l2_normalise
from ninfer.engine.model.reduce import linear, rounded, tree_sum
from ninfer.engine.model.weights import DeltaNetWeights
from ninfer.engine.types import PAGE_TOKENS

CHUNK_TOKENS = PAGE_TOKENS
_BLOCK = 16
"""Rows solved by substitution. Inverting all 64 by powers (Neumann) loses every digit on correlated keys."""


class Gates(NamedTuple):
    """What is projected beside the convolution's input. Leading dimensions are the rows'."""

    mixed: jax.Array
    """[..., C], the convolution's input"""
    z: jax.Array
    """[..., Hv * dv], the output gate"""
    log_decay: jax.Array
    """float32 [..., Hv], at most 0"""
    beta: jax.Array
    """float32 [..., Hv], in (0, 1)"""


class Heads(NamedTuple):
    """Inputs of the delta rule, float32. Leading dimensions are the rows'."""

    query: jax.Array
    """[..., Hv, dk], of length dk ** -0.5"""
    key: jax.Array
    """[..., Hv, dk], of length 1"""
    value: jax.Array
    """[..., Hv, dv]"""


def project(weights: DeltaNetWeights, x: jax.Array) -> Gates:
    """Everything that is linear in x [..., H], and the two gates made of it."""
    a = linear(x, weights.in_proj_a).astype(jnp.float32)
    rate = exp(weights.a_log.astype(jnp.float32))
    return Gates(
        mixed=linear(x, weights.in_proj_qkv),
        z=linear(x, weights.in_proj_z),
        log_decay=rounded(-rate * softplus(a + weights.dt_bias.astype(jnp.float32))),
        beta=sigmoid(linear(x, weights.in_proj_b).astype(jnp.float32)),
    )


def convolve(weights: DeltaNetWeights, mixed: jax.Array, tail: jax.Array) -> jax.Array:
    """Causal depthwise convolution and SiLU: mixed [..., T, C] after tail [..., C, 3] (oldest first) -> [..., T, C]."""
    joined = join_tail(mixed, tail)
    tokens = mixed.shape[-2]
    taps = weights.conv1d.astype(mixed.dtype)
    total = rounded(lax.slice_in_dim(joined, 0, tokens, axis=-2) * taps[:, 0])
    for tap in range(1, CONV_TAPS):
        total = total + rounded(lax.slice_in_dim(joined, tap, tap + tokens, axis=-2) * taps[:, tap])
    return silu(total)


def join_tail(mixed: jax.Array, tail: jax.Array) -> jax.Array:
    """mixed [..., T, C] with the three inputs before it: [..., 3 + T, C]; rows n .. n + 2 are the tail after n."""
    return jnp.concatenate([jnp.swapaxes(tail, -1, -2).astype(mixed.dtype), mixed], axis=-2)


def split_heads(config: TextConfig, convolved: jax.Array) -> Heads:
    """Cut [..., C] into heads; the query and key of a key head serve all its value heads."""
    rows, keys = convolved.shape[:-1], config.key_width
    convolved = convolved.astype(jnp.float32)
    narrow = (*rows, config.linear_num_key_heads, config.linear_key_head_dim)
    share = config.linear_num_value_heads // config.linear_num_key_heads
    query = l2_normalise(convolved[..., :keys].reshape(narrow)) * config.linear_key_head_dim**-0.5
    key = l2_normalise(convolved[..., keys : 2 * keys].reshape(narrow))
    value = convolved[..., 2 * keys :].reshape(*rows, config.linear_num_value_heads, config.linear_value_head_dim)
    return Heads(jnp.repeat(query, share, axis=-2), jnp.repeat(key, share, axis=-2), value)


def finish(config: TextConfig, weights: DeltaNetWeights, mixed: jax.Array, z: jax.Array) -> jax.Array:
    """Norm, gate and project: mixed [..., Hv, dv], z [..., Hv * dv] -> [..., H]."""
    gated = gated_rms_norm(mixed, z.reshape(mixed.shape), weights.norm, config.rms_norm_eps)
    return linear(gated.reshape(z.shape), weights.out_proj)


def recurrent_step(
    state: jax.Array, heads: Heads, log_decay: jax.Array, beta: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One token per lane: state [R, Hv, dk, dv], heads and gates of [R] rows -> output [R, Hv, dv], new state."""
    decay = exp(log_decay)
    # What key and query find in the old state, in one product per row and head: S'^T q = exp(g) S^T q + (k . q) u.
    found = jnp.einsum("...nk,...kv->...nv", jnp.stack([heads.key, heads.query], axis=-2), state)
    found = rounded(found * decay[..., None, None])
    change = rounded(beta[..., None] * (heads.value - found[..., 0, :]))
    overlap = tree_sum(heads.key * heads.query)[..., None]
    after = rounded(state * decay[..., None, None]) + rounded(heads.key[..., None] * change[..., None, :])
    return found[..., 1, :] + rounded(overlap * change), after


class Chunk(NamedTuple):
    """What a chunk contributes before its starting state is known. Leading dimensions [..., Hv]."""

    into_state: jax.Array
    """[..., dk, c]: keys decayed to the chunk's end, transposed"""
    from_query: jax.Array
    """[..., c, dk]: queries decayed from the chunk's start"""
    from_key: jax.Array
    """[..., c, dk]: what the starting state takes away from the writes"""
    writes: jax.Array
    """[..., c, dv]: writes from a zero state"""
    inside: jax.Array
    """[..., c, c]: how much of each write each query reads, lower triangular"""
    decay: jax.Array
    """[...]: decay of the starting state over the whole chunk"""


def prepare_chunk(heads: Heads, log_decay: jax.Array, beta: jax.Array) -> Chunk:
    """heads with leading [..., c, Hv] and gates [..., c, Hv] -> the chunk.

    A row whose key, value, beta and log decay are 0 is as good as absent.
    """
    query, key, value = (jnp.swapaxes(part, -2, -3) for part in heads)  # [..., Hv, c, width]
    strength = jnp.swapaxes(beta, -1, -2)[..., None]  # [..., Hv, c, 1]
    decay = jnp.cumsum(jnp.swapaxes(log_decay, -1, -2), axis=-1)  # [..., Hv, c]
    lower = jnp.tril(jnp.ones((CHUNK_TOKENS, CHUNK_TOKENS), bool))
    # The mask is inside the exponential: above the diagonal the difference is positive and would overflow.
    ratio = jnp.exp(jnp.where(lower, decay[..., :, None] - decay[..., None, :], -jnp.inf))
    keys_across = jnp.swapaxes(key, -1, -2)
    overlap = jnp.where(jnp.tril(lower, -1), strength * (key @ keys_across) * ratio, 0.0)
    solve = unit_lower_inverse(overlap)
    since_start = jnp.exp(decay)[..., None]
    to_end = jnp.exp(decay[..., -1:] - decay)[..., None, :]
    return Chunk(
        into_state=keys_across * to_end,
        from_query=query * since_start,
        from_key=solve @ (strength * since_start * key),
        writes=solve @ (strength * value),
        inside=(query @ keys_across) * ratio,
        decay=jnp.exp(decay[..., -1]),
    )


def chunk_step(state: jax.Array, chunk: Chunk) -> tuple[jax.Array, jax.Array]:
    """state [..., Hv, dk, dv] before the chunk -> state after it, output [..., Hv, c, dv]."""
    writes = chunk.writes - chunk.from_key @ state
    out = chunk.from_query @ state + chunk.inside @ writes
    return chunk.decay[..., None, None] * state + chunk.into_state @ writes, out


@jax.custom_jvp
def unit_lower_inverse(strict: jax.Array) -> jax.Array:
    """(I + strict)^-1 for strictly lower triangular strict [..., 64, 64]: 16 x 16 substitution, then block merges."""
    size = strict.shape[-1]
    blocks = size // _BLOCK
    cut = strict.reshape(*strict.shape[:-2], blocks, _BLOCK, blocks, _BLOCK)
    diagonal = jnp.stack([cut[..., b, :, b, :] for b in range(blocks)], axis=-3)  # [..., blocks, 16, 16]
    rows = [jnp.broadcast_to(jnp.eye(_BLOCK, dtype=strict.dtype)[0], (*diagonal.shape[:-2], _BLOCK))]
    for row in range(1, _BLOCK):
        solved = jnp.stack(rows, axis=-2)  # [..., row, 16]
        known = jnp.sum(diagonal[..., row, :row, None] * solved, axis=-2)
        rows.append(jnp.eye(_BLOCK, dtype=strict.dtype)[row] - known)
    merged = jnp.stack(rows, axis=-2)
    width = _BLOCK
    while width < size:
        top, bottom = merged[..., 0::2, :, :], merged[..., 1::2, :, :]
        below = jnp.stack(
            [strict[..., at + width : at + 2 * width, at : at + width] for at in range(0, size, 2 * width)], axis=-3
        )
        corner = -(bottom @ (below @ top))
        merged = jnp.concatenate(
            [
                jnp.concatenate([top, jnp.zeros_like(top)], axis=-1),
                jnp.concatenate([corner, bottom], axis=-1),
            ],
            axis=-2,
        )
        width *= 2
    return merged[..., 0, :, :]


@unit_lower_inverse.defjvp
def _unit_lower_inverse_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    inverse = unit_lower_inverse(*primals)  # d(M^-1) = -M^-1 dM M^-1: no derivative through the substitution
    return inverse, -(inverse @ (jnp.tril(tangents[0], -1) @ inverse))


def delta_rule_prompt(
    state: jax.Array, heads: Heads, log_decay: jax.Array, beta: jax.Array, count: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The first `count` of T tokens of one lane in chunks of 64 counted from the first; T is a multiple of 64.

    state [Hv, dk, dv], heads [T, Hv, ...], gates [T, Hv], count int32 scalar -> output [T, Hv, dv], state after
    `count` tokens. Chunks are computed one by one, so T changes no bit.
    """
    tokens, value_heads, width = heads.value.shape
    chunks = tokens // CHUNK_TOKENS
    real = (jnp.arange(tokens) < count)[:, None]
    heads = Heads(
        heads.query,
        jnp.where(real[..., None], heads.key, 0.0),
        jnp.where(real[..., None], heads.value, 0.0),
    )
    log_decay, beta = jnp.where(real, log_decay, 0.0), jnp.where(real, beta, 0.0)
    cut = jax.tree.map(lambda x: x.reshape(chunks, CHUNK_TOKENS, *x.shape[1:]), (heads, log_decay, beta))

    def one(index: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        state, out = carry
        own = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, index, keepdims=False), cut)
        state, mixed = chunk_step(state, prepare_chunk(*own))
        return state, lax.dynamic_update_index_in_dim(out, mixed.swapaxes(0, 1), index, 0)

    used = (count + CHUNK_TOKENS - 1) // CHUNK_TOKENS
    out = jnp.zeros((chunks, CHUNK_TOKENS, value_heads, width), jnp.float32)
    state, out = lax.fori_loop(0, used, one, (state, out))
    return out.reshape(heads.value.shape), state


def delta_rule_sequence(
    state: jax.Array, heads: Heads, log_decay: jax.Array, beta: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Whole sequences, differentiable: all chunks are prepared at once, only the states are scanned.

    state [B, Hv, dk, dv], heads [B, T, Hv, ...], gates [B, T, Hv], T a multiple of 64 -> output [B, T, Hv, dv], state.
    """
    batch, tokens = beta.shape[:2]
    cut = jax.tree.map(
        lambda x: x.reshape(batch, tokens // CHUNK_TOKENS, CHUNK_TOKENS, *x.shape[2:]), (heads, log_decay, beta)
    )
    by_chunk = jax.tree.map(lambda x: x.swapaxes(0, 1), prepare_chunk(*cut))
    state, out = lax.scan(chunk_step, state, by_chunk)  # out [chunks, B, Hv, c, dv]
    return out.transpose(1, 0, 3, 2, 4).reshape(heads.value.shape), state
