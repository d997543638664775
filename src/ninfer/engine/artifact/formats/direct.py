"""Formats without groups: numbers as they are, and 8-bit integers with a scale for each row."""

from collections.abc import Sequence

import attrs
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ninfer.engine.artifact.formats.base import Array, Plane, Shape


@attrs.frozen
class Direct:
    """Numbers stored as they are, one code each."""

    name: str
    dtype: "np.dtype[np.generic]"

    def planes(self, shape: Shape) -> tuple[Plane, ...]:
        """One plane, of the tensor's own shape."""
        return (Plane("values", self.dtype, shape),)

    def encode(self, values: Array) -> tuple[Array, ...]:
        """Round to nearest, ties to even; values that fit stay exact."""
        return (values.astype(self.dtype, copy=False),)

    def decode(self, planes: Sequence[Array]) -> NDArray[np.float32]:
        """Exact. No copy for fp32."""
        return planes[0].astype(np.dtype("<f4"), copy=False)


@attrs.frozen
class RowScaled:
    """8-bit codes -127..127 with one fp32 scale per output row: value = code * scale."""

    name: str = attrs.field(default="int8_row", init=False)

    def planes(self, shape: Shape) -> tuple[Plane, ...]:
        """`codes`, of the tensor's shape, and `scales`, one for each entry of its first axis."""
        if len(shape) < 2:
            raise ValueError(f"int8_row scales the rows of a matrix, and shape {list(shape)} has none")
        return Plane("codes", np.dtype("i1"), shape), Plane("scales", np.dtype("<f4"), shape[:1])

    def encode(self, values: Array) -> tuple[Array, ...]:
        """The largest magnitude of a row becomes 127; a row of zeros has scale 0. Ties to even."""
        rows = values.astype(np.float32).reshape(len(values), -1)
        scales = np.max(np.abs(rows), axis=1, initial=0.0) / np.float32(127)
        divisors = np.where(scales > 0, scales, np.float32(1))
        codes = np.clip(np.rint(rows / divisors[:, None]), -127, 127).astype(np.int8)
        return codes.reshape(values.shape), scales.astype("<f4")

    def decode(self, planes: Sequence[Array]) -> NDArray[np.float32]:
        """One product per value, in float32."""
        codes, scales = planes
        return codes.astype(np.float32) * scales.astype(np.float32).reshape(-1, *[1] * (codes.ndim - 1))


FP32 = Direct("fp32", np.dtype("<f4"))
BF16 = Direct("bf16", np.dtype(ml_dtypes.bfloat16))
INT8_ROW = RowScaled()
