"""What one decode kernel hands to the next: attention over parts of the keys, not yet summed.

The first part is the row's own new token alone, which so need not wait for the pool. The keys before it are cut into
splits of whole pages, by the row's own length alone, so that neither the batch nor the longest row changes a bit of it.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import register_dataclass

from kernels_pallas.kv_cache.pool import PAGE_TOKENS

HIDDEN = -1e30
"""Logarithm of the weight of nothing. Finite: the difference of two is 0, not NaN."""


@register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Partials:
    """Averages of values over parts. M rows, S splits, h query heads, d head width.

    Parts that a row does not use hold anything.
    """

    mixed: jax.Array
    """float32 [M, 1 + S, h, d]: softmax within the part, times values"""
    weights: jax.Array
    """float32 [M, 1 + S, h]: logarithm to base 2 of the part's sum of exponentials"""
    positions: jax.Array
    """int32 [M]: each row's position; negative for padding"""


def pages_before(position: jax.Array) -> jax.Array:
    """Pages that hold the keys before this position; 0 for padding."""
    return lax.div(jnp.maximum(position, 0) + (PAGE_TOKENS - 1), PAGE_TOKENS)


def pages_per_split(pages: jax.Array, splits: int) -> jax.Array:
    """Pages of each split when so many pages are cut into `splits` at most."""
    return jnp.maximum(lax.div(pages + (splits - 1), splits), 1)


def used_parts(position: jax.Array, parts: int) -> jax.Array:
    """How many of the 1 + S parts a row at this position uses: the first ones; 0 for padding."""
    pages = pages_before(position)
    own = pages_per_split(pages, parts - 1)
    return jnp.where(position < 0, 0, 1 + lax.div(pages + own - 1, own))
