"""Layouts: how the planes of a tensor are arranged in its bytes.

A layout knows planes (arrays of codes), not what the codes mean: that is the format's business (`formats`). It turns
the natural planes of a format into stored planes, which lie one after another, each on a multiple of 256 bytes.

Invariant: rows stay in order. A stored plane's first axis grows with the rows, so that any `row_step` rows of a tensor
are one run of bytes in each plane, and matrices are joined by rows by joining their stored planes along that axis.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import attrs
import numpy as np

from kernels_pallas import packing
from ninfer.engine.artifact.formats import Array, Format, Plane, Shape

PLANE_ALIGN_BYTES = 256


class Layout(Protocol):
    """An arrangement of planes."""

    @property
    def name(self) -> str:
        """The name in the directory of an artifact."""
        ...

    @property
    def row_step(self) -> int:
        """`pack` takes multiples of so many rows."""
        ...

    def stored(self, form: Format, shape: Shape) -> tuple[Plane, ...]:
        """The planes as they are stored.

        Raises:
            ValueError: the format or the layout cannot hold such a shape; the text says why.
        """
        ...

    def pack(self, form: Format, planes: Sequence[Array]) -> tuple[Array, ...]:
        """Stored planes of natural ones, which have all columns and a multiple of `row_step` rows."""
        ...

    def unpack(self, form: Format, shape: Shape, stored: Sequence[Array]) -> tuple[Array, ...]:
        """Natural planes of stored ones; `shape` is the tensor's. Views where the two are the same."""
        ...


@attrs.frozen
class Contiguous:
    """Stored planes are the natural ones, in C order."""

    name: str = attrs.field(default="contiguous", init=False)
    row_step: int = attrs.field(default=1, init=False)

    def stored(self, form: Format, shape: Shape) -> tuple[Plane, ...]:
        """The format's own planes."""
        return form.planes(shape)

    def pack(self, form: Format, planes: Sequence[Array]) -> tuple[Array, ...]:
        """As they are."""
        return tuple(planes)

    def unpack(self, form: Format, shape: Shape, stored: Sequence[Array]) -> tuple[Array, ...]:
        """As they are."""
        return tuple(stored)


@attrs.frozen
class Fragment:
    """The order of a matrix's codes in which kernels read them: tiles of 16 rows, see `kernels_pallas`.

    Stored planes have the names that the packing gives them: `codes`, and `high`, `scales`, `row_scales` where the
    format has them. Bits of the packing belong to the name of this layout: another order must get another name.
    """

    name: str = attrs.field(default="fragment", init=False)
    row_step: int = attrs.field(default=16, init=False)

    def stored(self, form: Format, shape: Shape) -> tuple[Plane, ...]:
        """The packed planes of a matrix whose rows are a multiple of 16 and columns one of 64."""
        if len(shape) != 2:
            raise ValueError(f"layout fragment holds matrices, and shape {list(shape)} is none")
        form.planes(shape)
        specs = packing.plane_specs(form.name, *shape)
        return tuple(Plane(name, spec.dtype, spec.shape) for name, spec in specs.items())

    def pack(self, form: Format, planes: Sequence[Array]) -> tuple[Array, ...]:
        """Packed planes of some tiles."""
        shape = planes[0].shape
        natural = {plane.name: array for plane, array in zip(form.planes(shape), planes, strict=True)}
        if "values" in natural:  # bf16 is its own code
            natural["codes"] = natural.pop("values").view("<u2")
        return tuple(packing.pack(form.name, natural).values())

    def unpack(self, form: Format, shape: Shape, stored: Sequence[Array]) -> tuple[Array, ...]:
        """Natural planes, as copies."""
        packed = {plane.name: array for plane, array in zip(self.stored(form, shape), stored, strict=True)}
        natural = packing.unpack(form.name, packed)
        return tuple(
            natural["codes" if plane.name == "values" else plane.name].view(plane.dtype) for plane in form.planes(shape)
        )


def size_bytes(planes: Sequence[Plane]) -> int:
    """Bytes of a tensor with these stored planes, padding between planes included."""
    return max((start + plane.size_bytes for start, plane in _starts(planes)), default=0)


def views(buffer: memoryview, planes: Sequence[Plane]) -> tuple[Array, ...]:
    """The stored planes as read-only views of `buffer`, the tensor's bytes."""
    return tuple(
        np.frombuffer(buffer[start : start + plane.size_bytes], dtype=plane.dtype).reshape(plane.shape)
        for start, plane in _starts(planes)
    )


def places(planes: Sequence[Plane], rows: int, start: int) -> tuple[int, ...]:
    """Where in a tensor of `rows` rows the bytes of row `start` begin, for each stored plane."""
    return tuple(begin + plane.size_bytes * start // max(1, rows) for begin, plane in _starts(planes))


def paddings(planes: Sequence[Plane]) -> Iterator[tuple[int, int]]:
    """Where padding between stored planes begins and ends, from the tensor's start."""
    end = 0
    for start, plane in _starts(planes):
        if start > end:
            yield end, start
        end = start + plane.size_bytes


def align(position: int, step: int) -> int:
    """The least multiple of `step` that is not below `position`."""
    return -(-position // step) * step


def _starts(planes: Sequence[Plane]) -> Iterator[tuple[int, Plane]]:
    end = 0
    for plane in planes:
        start = align(end, PLANE_ALIGN_BYTES)
        yield start, plane
        end = start + plane.size_bytes


CONTIGUOUS = Contiguous()
FRAGMENT = Fragment()

LAYOUTS: Mapping[str, Layout] = MappingProxyType({layout.name: layout for layout in (CONTIGUOUS, FRAGMENT)})
"""The layouts this build reads, by name."""
