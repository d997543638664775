"""What the selection hands to the draw."""

from typing import NamedTuple

import jax


class Best(NamedTuple):
    """The best tokens of each row, best first; equal values come lowest id first. n is the number of candidates."""

    values: jax.Array
    """float32 [M, n]: penalised logits"""
    ids: jax.Array
    """int32 [M, n]"""
    faulty: jax.Array
    """bool [M]: a logit was not finite, the rest means nothing"""
