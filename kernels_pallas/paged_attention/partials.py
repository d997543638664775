"""What one decode kernel hands to the next: attention over parts of the keys, not yet summed.

The keys of a row are cut into splits of whole pages, by the row's own length alone, so that neither the batch nor
the longest row changes a bit of it.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax.tree_util import register_dataclass

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


def pages_per_split(pages: jax.Array | int, splits: int) -> jax.Array:
    """Pages of each split of a row that sees so many pages, when at most `splits` may be used."""
    return (jnp.asarray(pages, jnp.int32) + splits - 1) // splits


def used_splits(positions: jax.Array, splits: int, page_tokens: int) -> jax.Array:
    """int32 [M] of positions [M]: splits that hold a visible key; 0 for padding."""
    pages = positions // page_tokens + 1  # 0 for -1: floor division
    own = jnp.maximum(pages_per_split(pages, splits), 1)
    return jnp.where(positions >= 0, (pages + own - 1) // own, 0)
