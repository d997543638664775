"""Signed integer codes with one float16 scale for each group of columns: value = scale * code.

The rounding is the reference encoder's of the published groupwise artifacts: scale = fp16(amax / qmax); codes =
round-half-even(value * fp32(1 / scale)), clamped. The product with the reciprocal, not a division, is part of the
definition: the two differ where a quotient is near a tie.
"""

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from ninfer.engine.artifact.formats.base import Array, Plane, Shape, groups

LEAST_SCALE = np.float16(2.0**-24)
"""What a group gets that is not zero but whose scale rounds to zero: the least positive float16."""


@attrs.frozen
class GroupScaled:
    """Codes from `least` to `most`, groups of `group` columns."""

    name: str
    group: int
    least: int
    most: int
    """Also the code that a group's largest magnitude is brought to."""

    def planes(self, shape: Shape) -> tuple[Plane, ...]:
        """`codes` int8 [N, K] and `scales` float16 [N, K / group]."""
        count = groups(shape, self.group, self.name)
        return Plane("codes", np.dtype("i1"), shape), Plane("scales", np.dtype("<f2"), (shape[0], count))

    def encode(self, values: Array) -> tuple[Array, ...]:
        """Scale and code of every group; a group of zeros has scale 0 and zero codes.

        A magnitude for which float16 has no scale gets an infinite one, and decodes to no number: its owner refuses it.
        """
        grouped = values.astype(np.float32, copy=False).reshape(len(values), -1, self.group)
        largest = np.max(np.abs(grouped), axis=2, initial=0.0)
        scales = (largest / np.float32(self.most)).astype("<f2")
        scales[(scales == 0) & (largest > 0)] = LEAST_SCALE
        reciprocals = np.divide(
            np.float32(1), scales.astype(np.float32), out=np.zeros(scales.shape, np.float32), where=scales > 0
        )
        codes = np.rint(grouped * reciprocals[:, :, None])
        np.clip(codes, self.least, self.most, out=codes)
        return codes.astype(np.int8).reshape(values.shape), scales

    def decode(self, planes: Sequence[Array]) -> NDArray[np.float32]:
        """One product per value, in float32."""
        codes, scales = planes
        grouped = codes.astype(np.float32).reshape(len(codes), -1, self.group)
        return (grouped * scales.astype(np.float32)[:, :, None]).reshape(codes.shape)


INT8_G32 = GroupScaled("int8_g32", 32, -127, 127)
Q4_G64 = GroupScaled("q4_g64", 64, -8, 7)
Q5_G64 = GroupScaled("q5_g64", 64, -16, 15)
Q6_G64 = GroupScaled("q6_g64", 64, -32, 31)
