"""The 4-bit floating point numbers E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; bit 3 is the sign."""

import numpy as np
from numpy.typing import NDArray

GROUP = 16
"""Columns that share a scale in NVFP4."""

_POSITIVE = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
DECODED: NDArray[np.float32] = np.concatenate([_POSITIVE, -_POSITIVE])
"""The number of each code."""

_CODE_OF_HALVES = np.zeros(13, np.uint8)
_CODE_OF_HALVES[(_POSITIVE * 2).astype(int)] = np.arange(8)


def nearest(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each value rounded to the nearest E2M1 number, ties to even codes, as float32.

    Numbers of one binade are multiples of a step: half of the power of two below them, at least 0.5. A float32 of
    1.5 * 2**23 steps has exactly that step between neighbours, so adding and taking it away rounds.
    """
    anchor = (values.view(np.uint32) & np.uint32(0x7F800000)).view(np.float32)
    np.maximum(anchor, np.float32(1), out=anchor)
    anchor *= np.float32(1.5 * 2**22)
    rounded = values + anchor
    rounded -= anchor
    np.clip(rounded, -6, 6, out=rounded)
    return rounded


def codes_of(rounded: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The codes, 0 to 15, of E2M1 numbers. Zero has one code: 0."""
    halves = (np.abs(rounded) * np.float32(2)).astype(np.uint8)
    return _CODE_OF_HALVES[halves] | (np.uint8(8) * (rounded < 0))
