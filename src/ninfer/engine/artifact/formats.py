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


FP32 = Direct("fp32", np.dtype("<f4"))
BF16 = Direct("bf16", np.dtype(ml_dtypes.bfloat16))

FORMATS: Mapping[str, Format] = MappingProxyType({form.name: form for form in (FP32, BF16)})
"""The formats this build reads, by name."""
