"""Numeric formats: what the stored codes of a tensor mean as numbers.

A format turns values into planes (arrays of codes, and of scales where it has them) and back. It does not know where
or in which order the bytes of a plane lie in a file: that is the layout's business (`layouts.py`).

Invariant: a format works row by row. `encode(values[a:b])` equals rows a to b of each plane of `encode(values)`, so
that a conversion may take any tensor in small pieces. A format with one scale per output row fits: planes
`codes [N, K]` and `scales [N]`.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import attrs
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]
Array = NDArray[np.generic]


@attrs.frozen
class Plane:
    """One stored array of a tensor. `dtype` is little-endian."""

    name: str
    dtype: "np.dtype[np.generic]"
    shape: Shape

    @property
    def size_bytes(self) -> int:
        """Bytes of the codes alone, without padding."""
        return math.prod(self.shape) * self.dtype.itemsize


class Format(Protocol):
    """A numeric format."""

    @property
    def name(self) -> str:
        """The name in the directory of an artifact."""
        ...

    def planes(self, shape: Shape) -> tuple[Plane, ...]:
        """What is stored for a tensor of `shape`; every plane's first axis is the tensor's.

        Raises:
            ValueError: the format cannot hold such a shape; the text says why.
        """
        ...

    def encode(self, values: Array) -> tuple[Array, ...]:
        """`values` (float32, bfloat16 or float16; some rows or all) as one array per plane."""
        ...

    def decode(self, planes: Sequence[Array]) -> NDArray[np.float32]:
        """The float32 numbers that the planes stand for. A view of them where nothing has to be computed."""
        ...


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

FORMATS: Mapping[str, Format] = MappingProxyType({form.name: form for form in (FP32, BF16, INT8_ROW)})
"""The formats this build reads, by name."""
