"""The loss of one packed batch: next tokens, and the draft head at depths 1 to 3."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ninfer.engine.model.config import TextConfig
from tools.demo_model.data import FILLING, LEARNED, STARTS
from tools.demo_model.model import Tree, logits, mtp_depths, trunk

PROMPT_WEIGHT = 0.1
MTP_WEIGHT = 0.3
DEPTHS = 3


def token_weights(flags: jax.Array) -> jax.Array:
    """How much each token counts as a target, float32."""
    weight = jnp.where(flags & LEARNED, 1.0, PROMPT_WEIGHT)
    return jnp.where((flags & (FILLING | STARTS)) > 0, 0.0, weight)


def _entropy(params: Tree, hidden: jax.Array, targets: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Weighted mean cross entropy, and the share of full-weight targets that the best score hits."""
    scores = logits(params, hidden)
    # Compared with a counter, not gathered: the derivative of a gather is a scatter.
    gold = jnp.sum(jnp.where(jnp.arange(scores.shape[-1]) == targets[..., None], scores, 0), -1, dtype=jnp.float32)
    loss = jax.nn.logsumexp(scores.astype(jnp.float32), -1) - gold
    learned = weights >= 1.0
    hit = (gold >= jnp.max(scores, -1).astype(jnp.float32)) & learned
    return jnp.sum(loss * weights) / (jnp.sum(weights) + 1e-6), jnp.sum(hit) / (jnp.sum(learned) + 1e-6)


def objective(
    params: Tree, tokens: jax.Array, flags: jax.Array, s: TextConfig, draft_rows: int, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array]:
    """Loss and [loss, accuracy, draft loss, draft accuracy at depths 1..3]; tokens, flags [B, T]."""
    tokens = tokens.astype(jnp.int32)
    starts = (flags & STARTS) > 0
    weight = token_weights(flags)
    hidden, segment = trunk(params, tokens, starts, s, dtype)
    main, accuracy = _entropy(params, hidden, jnp.roll(tokens, -1, 1), jnp.roll(weight, -1, 1).at[:, -1].set(0.0))
    if not draft_rows:
        return main, jnp.stack([main, accuracy])
    n = draft_rows
    depths = mtp_depths(params, hidden[:n], tokens[:n], segment[:n], DEPTHS, s)
    targets = jnp.roll(tokens[:n], -2, 1)
    draft, hits = jnp.zeros(()), []
    for depth, out in enumerate(depths):
        # The chain began at p - depth: all of it must lie in the target's conversation.
        same = jnp.roll(segment[:n], depth, 1) == jnp.roll(segment[:n], -2, 1)
        w = jnp.where(same, jnp.roll(weight[:n], -2, 1), 0.0).at[:, -2:].set(0.0).at[:, :depth].set(0.0)
        loss, hit = _entropy(params, out, targets, w)
        draft += loss / len(depths)
        hits.append(hit)
    return main + MTP_WEIGHT * draft, jnp.stack([main, accuracy, draft, *hits])
