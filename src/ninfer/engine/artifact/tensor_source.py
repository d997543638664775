"""Where the tensors of a new artifact come from: sources that give stored planes a few rows at a time.

Knows formats and layouts, no files. Invariant: rows depend on nothing but the source and their own numbers, so that
they may be asked for in any order, several at once, and again.
"""

import math
from collections.abc import Callable
from typing import Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from ninfer.engine.artifact.formats import FP32, Array, Format, Shape
from ninfer.engine.artifact.layouts import Layout, size_bytes


@attrs.frozen(kw_only=True)
class StoredRows:
    """Some rows as they are stored, and what storing them so changed."""

    planes: tuple[Array, ...]
    squared_error: float = 0.0
    """Sum of (stored - given)**2."""
    squared: float = 0.0
    """Sum of given**2."""


class Rows(Protocol):
    """An open source."""

    def stored(self, start: int, stop: int) -> StoredRows:
        """Rows `start` to `stop`, multiples of the source's `row_step` or the end. Called from several threads.

        Raises:
            ValueError: they cannot be stored; the text says why.
        """
        ...


@attrs.frozen(kw_only=True)
class TensorSource:
    """A tensor to store. `open` is called when it is the tensor's turn; what it returns is dropped afterwards."""

    name: str
    component: str
    shape: Shape
    format: Format
    layout: Layout
    open: Callable[[], Rows]
    row_step: int
    """Rows come in multiples of this many: the layout's, or more."""
    measured: bool = False
    """Whether the rows tell their squares, for the record's `relative_error`."""

    @property
    def rows(self) -> int:
        """Length of the first axis; a scalar is one row."""
        return self.shape[0] if self.shape else 1

    @property
    def size_bytes(self) -> int:
        """Stored bytes."""
        return size_bytes(self.layout.stored(self.format, self.shape))

    def piece_rows(self, piece_bytes: int) -> int:
        """How many rows to take at once for `piece_bytes` bytes of float32 values: whole steps, at least one."""
        row_bytes = 4 * max(1, math.prod(self.shape[1:]))
        return max(1, piece_bytes // row_bytes // self.row_step) * self.row_step


def encoded(
    *, name: str, component: str, shape: Shape, format: Format, layout: Layout, load: Callable[[], Array]
) -> TensorSource:
    """A source that encodes what `load` gives: values (float32, bfloat16, float16), best a memory-mapped view."""
    return TensorSource(
        name=name,
        component=component,
        shape=shape,
        format=format,
        layout=layout,
        open=lambda: _Encoded(load(), format, layout),
        row_step=layout.row_step,
        measured=format is not FP32,
    )


@attrs.frozen
class _Encoded:
    """Values that are encoded, compared with what they became, and packed."""

    values: Array
    form: Format
    layout: Layout

    def stored(self, start: int, stop: int) -> StoredRows:
        """See `Rows`. Every number given must be finite, and every number that the format makes of it."""
        given = self.values[start:stop] if self.values.ndim else self.values
        if not _finite(given):
            raise ValueError("holds a number that is not finite")
        with np.errstate(all="ignore"):  # what overflows is found by its squares
            planes = self.form.encode(given)
            if self.form is FP32 or planes[0].dtype == given.dtype:  # exact
                return StoredRows(planes=self.layout.pack(self.form, planes))
            stored = self.form.decode(planes)
            squares = _squares(stored, given.astype(np.float32))
            if not math.isfinite(sum(squares)):  # float32 has no squares of large numbers
                squares = _squares(stored.astype(np.float64), given.astype(np.float64))
        if not math.isfinite(sum(squares)):
            raise ValueError(
                f"holds numbers too large for {self.form.name}, which would make a number that is not finite"
            )
        squared_error, squared = squares
        return StoredRows(planes=self.layout.pack(self.form, planes), squared_error=squared_error, squared=squared)


def _finite(values: Array) -> bool:
    """Whether no value has all its exponent bits set. NumPy's own test of 16-bit floats takes 15 times as long."""
    bits = values.view(f"u{values.itemsize}")
    exponent = np.array(np.inf, values.dtype).view(bits.dtype)
    return not values.size or bool(np.max(bits & exponent) != exponent)


def _squares(stored: NDArray[np.floating], given: NDArray[np.floating]) -> tuple[float, float]:
    """Sums of (stored - given)**2 and of given**2, each square in the type of the arrays."""
    return float(np.sum(np.square(stored - given), dtype=np.float64)), float(np.sum(np.square(given), dtype=np.float64))
