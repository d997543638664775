"""The E4M3FN scale of each NVFP4 group that gives the least squared error, the smallest of equally good ones.

All 126 positive scales are in question; two bounds leave about a dozen to try, without changing the result:
a scale whose clipped largest magnitude alone costs more than the best so far cannot win, and neither can one whose
half is representable and clips nothing: the half's numbers below its ceiling contain all of those of the double.
"""

import numpy as np
from numpy.typing import NDArray

from ninfer.engine.artifact.formats.e2m1 import nearest
from ninfer.engine.artifact.formats.fp8 import E4M3

LAST = 126
"""Bits of the largest scale, 448."""
SCALES: NDArray[np.float32] = np.arange(LAST + 1, dtype=np.uint8).view(E4M3).astype(np.float32)
_HALVED_BITS = 8
"""Halving takes 8 off the bits of a scale from 2 * `_HALVED_BITS` on; below lie subnormal ones, which are all tried."""
_SLACK = np.float32(1 + 2.0**-16)
"""More than the rounding of a sum of 16 squares."""
_AT_ONCE = 1 << 12
"""Groups: what is worked on stays in a core's cache."""


def best_scales(grouped: NDArray[np.float32], start: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bits [n] for `grouped` [n, 16], of magnitudes up to 6 * 448; `start` [n] are good bits, 0 for groups of zeros."""
    best = start.copy()
    alive = np.flatnonzero(start)
    for begin in range(0, len(alive), _AT_ONCE):
        at = alive[begin : begin + _AT_ONCE]
        best[at] = _search(np.ascontiguousarray(grouped[at].T), start[at].astype(np.int64))
    return best


def _search(values: NDArray[np.float32], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bits [n] for `values` [16, n], none of them a group of zeros."""
    largest = np.max(np.abs(values), axis=0)
    best, least = start.copy(), _errors(values, start)
    for step in (-1, 1):
        at, tried, still = np.arange(len(start)), start, values
        while len(at):
            tried = tried + step
            keep = _worth_trying(tried, largest[at], least[at], downwards=step < 0)
            at, tried, still = at[keep], tried[keep], np.compress(keep, still, axis=1)
            errors = _errors(still, tried)
            wins = (errors < least[at]) | ((errors == least[at]) & (tried < best[at]))
            best[at[wins]], least[at[wins]] = tried[wins], errors[wins]
    return best


def _worth_trying(
    bits: NDArray[np.int64], largest: NDArray[np.float32], least: NDArray[np.float32], *, downwards: bool
) -> NDArray[np.bool_]:
    """Which scales can still win, given the least errors so far. What cannot, cannot further on."""
    worth: NDArray[np.bool_]
    if downwards:
        lost = largest - np.float32(6) * SCALES[np.maximum(bits, 0)]
        worth = (bits >= 1) & ((lost <= 0) | (lost * lost <= least * _SLACK))
        return worth
    inside = np.minimum(bits, LAST)
    half = SCALES[np.maximum(inside - _HALVED_BITS, 0)]
    worth = (bits <= LAST) & ((inside < 2 * _HALVED_BITS) | (np.float32(6) * half < largest))
    return worth


def _errors(values: NDArray[np.float32], bits: NDArray[np.int64]) -> NDArray[np.float32]:
    """Squared error [n] of groups [16, n] under the scales of `bits` [n].

    The sum adds row to row, in order. NumPy's own sum takes another order when n is 1: the choice between equally good
    scales would depend on neighbours.
    """
    scales = SCALES[bits]
    rounded = nearest(values / scales)
    rounded *= scales
    rounded -= values
    np.square(rounded, out=rounded)
    errors: NDArray[np.float32] = rounded[0]
    for row in rounded[1:]:
        errors += row
    return errors
