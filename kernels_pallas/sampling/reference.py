"""The meaning of the selection in plain jnp: penalties, then the best few of each row. CPU programs run it."""

import jax
import jax.numpy as jnp
from jax import lax

from kernels_pallas.sampling.best import Best

_LOWEST = -3.38e38


def best_tokens_reference(
    logits: jax.Array,
    counts: jax.Array,
    slots: jax.Array,
    presence: jax.Array,
    frequency: jax.Array,
    *,
    used_tokens: int,
    candidates: int,
) -> Best:
    """See `kernels_pallas.sampling.best_tokens`."""
    logits = logits[:, :used_tokens].astype(jnp.float32)
    own = counts[jnp.maximum(slots, 0), :used_tokens]
    penalised = logits - penalty(own, presence[:, None], frequency[:, None])
    # Without the barrier XLA merges later slices into the selection and then sorts the whole vocabulary.
    values, ids = lax.optimization_barrier(lax.top_k(penalised, candidates))
    return Best(values=values, ids=ids, faulty=~jnp.all(jnp.isfinite(logits), axis=-1))


def penalty(counts: jax.Array, presence: jax.Array, frequency: jax.Array) -> jax.Array:
    """What a token loses that was generated `counts` times. The product is rounded before it is added (the maximum
    keeps a compiler from fusing the two)."""
    return presence * (counts > 0).astype(jnp.float32) + jnp.maximum(frequency * counts.astype(jnp.float32), _LOWEST)
