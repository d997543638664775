"""Layouts: where the planes of a tensor lie inside its bytes.

A layout knows planes (arrays of codes), not what the codes mean: that is the format's business (`formats.py`).

Invariant: `pieces` joined has exactly `size_bytes` bytes, and `unpack` of them gives the planes back, as views.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import attrs
import numpy as np

from ninfer.engine.artifact.formats import Array, Format, Plane

PLANE_ALIGN_BYTES = 256


class Layout(Protocol):
    """An arrangement of planes."""

    @property
    def name(self) -> str:
        """The name in the directory of an artifact."""
        ...

    def size_bytes(self, planes: Sequence[Plane]) -> int:
        """Bytes of a tensor with these planes, padding between planes included."""
        ...

    def pieces(self, form: Format, values: Array) -> Iterator[bytes]:
        """The bytes of `values` in format `form`, in file order, a few rows at a time."""
        ...

    def unpack(self, buffer: memoryview, planes: Sequence[Plane]) -> tuple[Array, ...]:
        """The planes as read-only views of `buffer`, which has `size_bytes` bytes."""
        ...


@attrs.frozen
class Contiguous:
    """Each plane in C order; the planes one after another, each starting on a multiple of 256 bytes."""

    piece_bytes: int = 8 << 20
    """About how many source bytes are encoded at once: bounds the memory of a conversion."""

    name: str = attrs.field(default="contiguous", init=False)

    def size_bytes(self, planes: Sequence[Plane]) -> int:
        """Bytes up to the end of the last plane."""
        end = 0
        for plane in planes:
            end = align(end, PLANE_ALIGN_BYTES) + plane.size_bytes
        return end

    def pieces(self, form: Format, values: Array) -> Iterator[bytes]:
        """Plane after plane; each pass over the rows encodes anew, which costs time and no memory."""
        planes = form.planes(values.shape)
        row_bytes = values.nbytes // max(1, len(values)) if values.ndim else values.nbytes
        step = max(1, self.piece_bytes // max(1, row_bytes))
        end = 0
        for index, plane in enumerate(planes):
            yield bytes(align(end, PLANE_ALIGN_BYTES) - end)
            end = align(end, PLANE_ALIGN_BYTES) + plane.size_bytes
            if not values.ndim:
                yield form.encode(values)[index].tobytes()
                continue
            for start in range(0, len(values), step):
                yield form.encode(values[start : start + step])[index].tobytes()

    def unpack(self, buffer: memoryview, planes: Sequence[Plane]) -> tuple[Array, ...]:
        """Views, one per plane."""
        views: list[Array] = []
        end = 0
        for plane in planes:
            start = align(end, PLANE_ALIGN_BYTES)
            end = start + plane.size_bytes
            views.append(np.frombuffer(buffer[start:end], dtype=plane.dtype).reshape(plane.shape))
        return tuple(views)


def align(position: int, step: int) -> int:
    """The least multiple of `step` that is not below `position`."""
    return -(-position // step) * step


LAYOUTS: Mapping[str, Layout] = MappingProxyType({layout.name: layout for layout in (Contiguous(),)})
"""The layouts this build reads, by name."""
