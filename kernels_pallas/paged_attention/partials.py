"""What one decode kernel hands to the next: attention over parts of the keys, not yet summed.

The keys of a row are cut into splits of whole pages, by the row's own length alone, so that neither the batch nor
the longest row changes a bit of it.
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
    """Averages of values over splits. M rows, S splits, h query heads, d head width.

    Splits that a row does not use hold anything.
    """

    mixed: jax.Array
    """float32 [M, S, h, d]: softmax within the split, times values"""
    weights: jax.Array
    """float32 [M, S, h]: logarithm to base 2 of the split's sum of exponentials"""
    positions: jax.Array
    """int32 [M]: each row's position; negative for padding"""
    least_pages: int = dataclasses.field(default=1, metadata={"static": True})
    """Fewest pages of a split"""


def pages_per_split(pages: jax.Array, splits: int, least: int) -> jax.Array:
    """Pages of each split of a row that sees so many pages, when at most `splits` may be used; `least` at least."""
    return jnp.maximum(lax.div(pages + (splits - 1), splits), least)


def visible_pages(position: jax.Array) -> jax.Array:
    """Pages that a row at this position sees, its own included; 0 for padding."""
    return jnp.where(position < 0, 0, lax.div(position, PAGE_TOKENS) + 1)


def used_splits(position: jax.Array, splits: int, least: int) -> jax.Array:
    """Splits that a row at this position uses; 0 for padding."""
    pages = visible_pages(position)
    own = pages_per_split(pages, splits, least)
    return lax.div(pages + own - 1, own)
