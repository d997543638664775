"""The first half of sampling on the device: penalties, and the best few tokens of every row.

The draw among them is the sampler's business. The meaning: reference.py.
"""

import jax

from kernels_pallas.dispatch import Impl, choose
from kernels_pallas.sampling.best import Best
from kernels_pallas.sampling.reference import best_tokens_reference
from kernels_pallas.sampling.triton import best_tokens_triton

__all__ = ["Best", "best_tokens"]


def best_tokens(
    logits: jax.Array,
    counts: jax.Array,
    slots: jax.Array,
    presence: jax.Array,
    frequency: jax.Array,
    *,
    used_tokens: int,
    candidates: int,
    impl: Impl = "auto",
) -> Best:
    """The `candidates` largest penalised logits of every row, equal ones lowest id first.

    A logit loses `presence` if its token was generated, and `frequency` for each time. The order is XLA's total order
    of floats. Every implementation gives the same bits, for any number of rows.

    Args:
        logits: float32 [M, V].
        counts: int32 [slots, V], how often each token was generated in a slot.
        slots: int32 [M]: whose counts a row takes; below 0 is padding, whose result means nothing.
        presence: float32 [M].
        frequency: float32 [M].
        used_tokens: ids from here on are not looked at.
        candidates: at most `used_tokens`.

    Returns:
        Values and ids [M, candidates], and whether a row's (used) logits were not all finite.

    Raises:
        ValueError: an implementation that does not exist, or more candidates than tokens.
    """
    if not 0 < candidates <= used_tokens <= logits.shape[-1]:
        raise ValueError(f"{candidates} candidates of {used_tokens} used tokens among {logits.shape[-1]}")
    run = choose(impl, {"reference": best_tokens_reference, "triton": best_tokens_triton})
    return run(logits, counts, slots, presence, frequency, used_tokens=used_tokens, candidates=candidates)
