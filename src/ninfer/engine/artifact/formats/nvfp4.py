"""4-bit floating point (E2M1) codes, an E4M3FN scale for each 16 columns, a float32 multiplier for each row.

value = code * scale * multiplier. The published format has one multiplier for a whole matrix; here each row has its
own, which keeps rows apart (`base.py`) and lets matrices be joined by rows. Two encoders give the same planes: `amax`
brings a group's largest magnitude to 6, `search` finds the scale with the least squared error (`nvfp4_search.py`).
"""

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from ninfer.engine.artifact.formats import nvfp4_search
from ninfer.engine.artifact.formats.base import Array, Plane, Shape, groups
from ninfer.engine.artifact.formats.e2m1 import DECODED, GROUP, codes_of, nearest
from ninfer.engine.artifact.formats.fp8 import E4M3, E4M3_MAX

E2M1_MAX = 6.0
LEAST_ROW = 2.0**-100
"""A row whose largest magnitude is below becomes zeros: its multiplier would leave the normal float32 numbers."""


@attrs.frozen
class Nvfp4:
    """`search` chooses the encoder; it is no part of the format, so both are called nvfp4."""

    search: bool = attrs.field(default=False, kw_only=True)
    name: str = attrs.field(default="nvfp4", init=False)

    def planes(self, shape: Shape) -> tuple[Plane, ...]:
        """`codes` uint8 [N, K] from 0 to 15, `scales` uint8 [N, K / 16], E4M3FN bits, and `row_scales` float32 [N]."""
        count = groups(shape, GROUP, self.name)
        return (
            Plane("codes", np.dtype("u1"), shape),
            Plane("scales", np.dtype("u1"), (shape[0], count)),
            Plane("row_scales", np.dtype("<f4"), shape[:1]),
        )

    def encode(self, values: Array) -> tuple[Array, ...]:
        """A row's largest magnitude is brought to 6 * 448. A group of zeros has scale 0, every other a positive one."""
        rows: NDArray[np.float32] = values.astype(np.float32, copy=False)
        largest: NDArray[np.float32] = np.max(np.abs(rows), axis=1, initial=0.0)
        largest[largest < LEAST_ROW] = 0
        multipliers = largest / np.float32(E2M1_MAX * E4M3_MAX)
        divided = np.zeros_like(rows)
        np.divide(rows, multipliers[:, None], out=divided, where=multipliers[:, None] > 0)
        grouped = divided.reshape(len(rows), -1, GROUP)
        scales = _amax_scales(grouped)
        if self.search:
            flat = grouped.reshape(-1, GROUP)
            scales = nvfp4_search.best_scales(flat, scales.reshape(-1)).reshape(scales.shape)
        divisors = scales.view(E4M3).astype(np.float32)
        divisors[scales == 0] = 1
        grouped /= divisors[:, :, None]
        codes = codes_of(nearest(grouped))
        return codes.reshape(values.shape), scales, multipliers

    def decode(self, planes: Sequence[Array]) -> NDArray[np.float32]:
        """code * scale is exact in float32; the multiplier rounds once."""
        codes, scales, multipliers = planes
        grouped: NDArray[np.float32] = DECODED[codes].reshape(len(codes), -1, GROUP)
        grouped *= scales.view(E4M3).astype(np.float32)[:, :, None]
        grouped *= multipliers.astype(np.float32)[:, None, None]
        return grouped.reshape(codes.shape)


def _amax_scales(grouped: NDArray[np.float32]) -> NDArray[np.uint8]:
    """E4M3FN bits [N, G] that bring each group's largest magnitude nearest to 6; 0 for groups of zeros only."""
    largest = np.max(np.abs(grouped), axis=2, initial=0.0)
    bits: NDArray[np.uint8] = np.minimum(largest / np.float32(E2M1_MAX), E4M3_MAX).astype(E4M3).view(np.uint8)
    bits[(bits == 0) & (largest > 0)] = 1
    return bits


NVFP4 = Nvfp4()
NVFP4_SEARCH = Nvfp4(search=True)
