"""What one decode kernel hands to the next: attention over parts of the keys, not yet summed.

The first part is the lane's new tokens alone, which so need not wait for the pool. The keys before them are cut into
splits of whole pages, by the lane's own length alone, so that neither the batch nor the longest row changes a bit.
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
    lane_rows: int = dataclasses.field(default=1, metadata={"static": True})
    """Rows of a lane, one after the other: the first one's position cuts the keys of all"""


def pages_before(position: jax.Array) -> jax.Array:
    """Pages that hold the keys before this position; 0 for padding."""
    return lax.div(jnp.maximum(position, 0) + (PAGE_TOKENS - 1), PAGE_TOKENS)


def pages_per_split(pages: jax.Array, splits: int) -> jax.Array:
    """Pages of each split when so many pages are cut into `splits` at most."""
    return jnp.maximum(lax.div(pages + (splits - 1), splits), 1)


def used_parts(start: jax.Array, position: jax.Array, parts: int) -> jax.Array:
    """How many of the 1 + S parts a row uses; 0 for padding. start: the position of its lane's first row."""
    pages = pages_before(start)
    own = pages_per_split(pages, parts - 1)
    return jnp.where(position < 0, 0, 1 + lax.div(pages + own - 1, own))
