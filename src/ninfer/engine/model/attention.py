"""Gated attention with grouped queries, in three forms: a prompt chunk, decode rows, a whole sequence.

The two serving forms walk over pages of `PAGE_TOKENS` keys in order with an online softmax. A page without a visible
key changes nothing, not a bit, so the number of pages walked may follow the longest lane. Keys in the pool are normed
and rotated, values raw. Symbols: R rows, T tokens, kv key-value heads, g query heads per kv head, d head width,
P pages of a lane's table, n of them in one turn.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.elementary import exp, sigmoid
from ninfer.engine.model.norms import rms_norm
from ninfer.engine.model.reduce import linear, rounded, tree_sum
from ninfer.engine.model.rotary import rotate
from ninfer.engine.model.weights import AttentionWeights
from ninfer.engine.types import PAGE_TOKENS

_HIDDEN = -1e30
"""Score of a key that the query must not see. Finite: the difference of two such scores is 0, not NaN."""

_PAGES_AT_ONCE = 2
"""Pages of a decode row in one turn: more of them are fewer turns, and more keys read behind the last token."""


class Projected(NamedTuple):
    """What attention needs of each row. Leading dimensions are the rows'."""

    query: jax.Array
    """[..., kv, g, d], normed, rotated, scaled by d ** -0.5"""
    key: jax.Array
    """[..., kv, d], normed and rotated"""
    value: jax.Array
    """[..., kv, d]"""
    gate: jax.Array
    """[..., kv * g * d], before the sigmoid"""


def project(
    config: TextConfig, weights: AttentionWeights, x: jax.Array, tables: tuple[jax.Array, jax.Array]
) -> Projected:
    """Queries, keys, values and gates of x [..., H] at the positions of the rotary tables [..., rotary / 2]."""
    heads, groups, width = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    rows = x.shape[:-1]
    with_gate = linear(x, weights.q_proj).reshape(*rows, heads, 2, width)  # query and gate alternate per head
    query = rotate(rms_norm(with_gate[..., 0, :], weights.q_norm, config.rms_norm_eps), tables)
    key = linear(x, weights.k_proj).reshape(*rows, groups, width)
    return Projected(
        query=(query * width**-0.5).reshape(*rows, groups, heads // groups, width),
        key=rotate(rms_norm(key, weights.k_norm, config.rms_norm_eps), tables),
        value=linear(x, weights.v_proj).reshape(*rows, groups, width),
        gate=with_gate[..., 1, :].reshape(*rows, heads * width),
    )


def finish(weights: AttentionWeights, attended: jax.Array, gate: jax.Array) -> jax.Array:
    """Gate and project: attended [..., kv, g, d], gate [..., kv * g * d] -> [..., H]."""
    return linear(attended.reshape(gate.shape) * sigmoid(gate), weights.o_proj)


def write_pool(pool: jax.Array, rows: jax.Array, pages: jax.Array, offsets: jax.Array) -> jax.Array:
    """Put rows [R, kv, d] at (pages [R], offsets [R]) of pool [pages, 64, kv, d]; a page beyond the pool is skipped."""
    return pool.at[pages, offsets].set(rows.astype(pool.dtype), mode="drop")


class _Softmax(NamedTuple):
    """A softmax in progress, float32: scores up to `best` [...], their sum [...], weighted values [..., d]."""

    best: jax.Array
    total: jax.Array
    mixed: jax.Array

    @classmethod
    def start(cls, shape: tuple[int, ...], width: int) -> "_Softmax":
        return cls(jnp.full(shape, _HIDDEN), jnp.zeros(shape), jnp.zeros((*shape, width)))

    def moved(self, best: jax.Array, total: jax.Array, mixed: jax.Array) -> "_Softmax":
        """With one page more, whose sums are relative to the new best."""
        keep = exp(self.best - best)
        return _Softmax(best, rounded(self.total * keep) + total, rounded(self.mixed * keep[..., None]) + mixed)

    def result(self) -> jax.Array:
        return self.mixed / self.total[..., None]


def attend_prompt(
    query: jax.Array, keys: jax.Array, values: jax.Array, pages: jax.Array, start: jax.Array, count: jax.Array
) -> jax.Array:
    """A chunk of one lane against its pages, the chunk's own keys included (they are in the pool already).

    query [T, kv, g, d] with T a multiple of 64 at positions start + 0 .. T - 1, of which `count` are real; keys and
    values [pool, 64, kv, d]; pages int32 [P]; start, count int32 scalars. Returns [T, kv, g, d]; rows of tiles that
    hold no real row are zero. Tiles of 64 rows are computed one by one, so T changes no bit.
    """
    tokens, groups, group, width = query.shape
    tiles = tokens // PAGE_TOKENS
    # [tiles, kv, g * 64, d]: every product of a tile has the same shape whatever T is.
    tiled = query.reshape(tiles, PAGE_TOKENS, groups, group, width).transpose(0, 2, 3, 1, 4)
    tiled = tiled.reshape(tiles, groups, group * PAGE_TOKENS, width)

    def tile(index: jax.Array, out: jax.Array) -> jax.Array:
        first = start + index * PAGE_TOKENS
        last = jnp.minimum(first + PAGE_TOKENS, start + count) - 1
        positions = jnp.tile(first + jnp.arange(PAGE_TOKENS), group)
        own = lax.dynamic_index_in_dim(tiled, index, keepdims=False)

        def page(number: jax.Array, state: _Softmax) -> _Softmax:
            seen = number * PAGE_TOKENS + jnp.arange(PAGE_TOKENS)
            visible = (seen[None, :] <= positions[:, None]) & (seen[None, :] <= last)
            key, value = keys[pages[number]].astype(jnp.float32), values[pages[number]].astype(jnp.float32)
            scores = jnp.einsum("krd,ckd->krc", own, key)
            scores = jnp.where(visible, scores, _HIDDEN)
            best = jnp.maximum(state.best, jnp.max(scores, axis=-1))
            shares = jnp.where(visible, exp(scores - best[..., None]), 0.0)
            # Stale memory behind the last token may hold anything: 0 * NaN is NaN.
            value = jnp.where((seen <= last)[:, None, None], value, 0.0)
            return state.moved(best, tree_sum(shares), jnp.einsum("krc,ckd->krd", shares, value))

        done: _Softmax = lax.fori_loop(0, last // PAGE_TOKENS + 1, page, _Softmax.start(own.shape[:-1], width))
        filled: jax.Array = lax.dynamic_update_index_in_dim(out, done.result(), index, 0)
        return filled

    used = (count + PAGE_TOKENS - 1) // PAGE_TOKENS
    out: jax.Array = lax.fori_loop(0, used, tile, jnp.zeros(tiled.shape, jnp.float32))
    out = out.reshape(tiles, groups, group, PAGE_TOKENS, width).transpose(0, 3, 1, 2, 4)
    return out.reshape(query.shape).astype(query.dtype)


def attend_rows(
    query: jax.Array, keys: jax.Array, values: jax.Array, pages: jax.Array, positions: jax.Array
) -> jax.Array:
    """One query per lane against that lane's pages, its own key included.

    query [R, kv, g, d]; keys and values [pool, 64, kv, d]; pages int32 [R, P]; positions int32 [R]. Returns
    [R, kv, g, d]. A row's bits depend on its own keys alone: each product belongs to one row and one page, sums over
    them are trees, and pages behind the last token are exact no-ops.
    """

    rows, groups, group, width = query.shape
    table = jnp.pad(pages, ((0, 0), (0, -pages.shape[1] % _PAGES_AT_ONCE)))
    # A product for each row, page and head: [g, d] x [d, 64], then [g, 64] x [64, d], however many rows there are.
    asked = jnp.broadcast_to(query.astype(jnp.float32)[:, None], (rows, _PAGES_AT_ONCE, groups, group, width))

    def turn(number: jax.Array, state: _Softmax) -> _Softmax:
        own = lax.dynamic_slice_in_dim(table, number * _PAGES_AT_ONCE, _PAGES_AT_ONCE, axis=1)
        first = number * _PAGES_AT_ONCE * PAGE_TOKENS
        seen = first + jnp.arange(_PAGES_AT_ONCE * PAGE_TOKENS).reshape(_PAGES_AT_ONCE, PAGE_TOKENS)
        visible = seen <= positions[:, None, None]  # [R, n, 64]
        key = keys[own].astype(jnp.float32).transpose(0, 1, 3, 2, 4)  # [R, n, kv, 64, d]
        value = values[own].astype(jnp.float32).transpose(0, 1, 3, 2, 4)
        scores = jnp.einsum("rnkgd,rnkcd->rnkgc", asked, key)
        shown = visible[:, :, None, None, :]
        scores = jnp.where(shown, scores, _HIDDEN)
        best = jnp.maximum(state.best, jnp.max(scores, axis=(1, 4)))
        shares = jnp.where(shown, exp(scores - best[:, None, :, :, None]), 0.0)
        value = jnp.where(visible[:, :, None, :, None], value, 0.0)
        mixed = jnp.einsum("rnkgc,rnkcd->rnkgd", shares, value)
        return state.moved(best, tree_sum(tree_sum(shares), axis=1), tree_sum(mixed, axis=1))

    walked = jnp.max(positions) // (_PAGES_AT_ONCE * PAGE_TOKENS) + 1
    done: _Softmax = lax.fori_loop(0, walked, turn, _Softmax.start(query.shape[:-1], query.shape[-1]))
    return done.result()


def attend_sequence(projected: Projected) -> jax.Array:
    """Causal attention over whole sequences without a pool, differentiable: [B, T, kv, g, d] -> the same shape."""
    query, key, value = projected.query, projected.key, projected.value
    batch, tokens, groups, group, width = query.shape
    attended = jax.nn.dot_product_attention(
        query.reshape(batch, tokens, groups * group, width), key, value, scale=1.0, is_causal=True
    )
    return attended.reshape(query.shape)
