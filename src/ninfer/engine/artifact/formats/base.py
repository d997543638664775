"""What a numeric format is: values into planes (arrays of codes, and of scales where it has them) and back.

A format does not know where or in which order the bytes of a plane lie in a file: that is the layout's business
(`layouts.py`). Planes as a format makes them are *natural*: rows in order, one code to an element.

Invariant: a format works row by row. `encode(values[a:b])` equals rows a to b of each plane of `encode(values)`, so
that a conversion may take any tensor in small pieces.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import attrs
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
        """The natural planes of a tensor of `shape`; every plane's first axis is the tensor's.

        Raises:
            ValueError: the format cannot hold such a shape; the text says why.
        """
        ...

    def encode(self, values: Array) -> tuple[Array, ...]:
        """`values` (float32, bfloat16 or float16; some rows or all; finite) as one array per plane."""
        ...

    def decode(self, planes: Sequence[Array]) -> NDArray[np.float32]:
        """The float32 numbers that the planes stand for. A view of them where nothing has to be computed."""
        ...


def groups(shape: Shape, group: int, name: str) -> int:
    """How many groups of `group` columns a row of the matrix `shape` has.

    Raises:
        ValueError: no matrix, or its columns are no multiple of `group`.
    """
    if len(shape) != 2:
        raise ValueError(f"{name} holds matrices, and shape {list(shape)} is none")
    if shape[1] % group:
        raise ValueError(f"{name} scales groups of {group} columns, and shape {list(shape)} has {shape[1]}")
    return shape[1] // group
