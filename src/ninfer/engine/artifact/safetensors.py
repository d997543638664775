"""Read one safetensors file by memory mapping: 8 bytes header length, JSON header, tensor bytes.

Knows nothing of models. Invariant: every entry of an open file lies inside its data and has the size of its shape.
"""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path

import attrs
import ml_dtypes
import numpy as np

from ninfer.engine.artifact.checked import Checked, parse_json
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.foreign import HEAD_BYTES, foreign_file
from ninfer.engine.artifact.formats import Array, Shape
from ninfer.engine.artifact.mapping import map_file

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000

DTYPES: Mapping[str, "np.dtype[np.generic]"] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
"""The stored types that can be converted."""

_ITEM_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "I32": 4}
_ITEM_BYTES |= {"U32": 4, "I64": 8, "U64": 8, "F64": 8} | {name: dtype.itemsize for name, dtype in DTYPES.items()}


@attrs.frozen(kw_only=True)
class Entry:
    """One tensor of a file; `start` and `end` are file offsets."""

    dtype: str
    shape: Shape
    start: int
    end: int


class SafetensorsFile:
    """An open file. Arrays taken from it are views of the mapping and keep it alive."""

    def __init__(self, file: Path) -> None:
        """Open and check.

        Raises:
            ArtifactError: unreadable, truncated, malformed, or entries that contradict each other.
        """
        self.file = file
        self._view = map_file(file)
        if len(self._view) < LENGTH_BYTES:
            raise ArtifactError("truncated: no header length", file=file, object="header", offset=len(self._view))
        length = int.from_bytes(self._view[:LENGTH_BYTES], "little")
        begin = LENGTH_BYTES + length
        if length > MAX_HEADER_BYTES or begin > len(self._view):
            message = f"header of {length} bytes does not fit: not a safetensors file, or truncated"
            foreign = foreign_file(bytes(self._view[:HEAD_BYTES]))
            raise ArtifactError(foreign or message, file=file, object="header", offset=0)
        header = parse_json(bytes(self._view[LENGTH_BYTES:begin]), file=file, object=None, offset=LENGTH_BYTES)
        self.entries: Mapping[str, Entry] = {
            name: self._entry(item, begin) for name, item in header.members() if name != "__metadata__"
        }
        self._check_overlaps()

    def read(self, name: str) -> Array:
        """A tensor as a read-only view in its stored type.

        Raises:
            ArtifactError: the type is none of `DTYPES`.
        """
        entry = self.entries[name]
        if entry.dtype not in DTYPES:
            message = f"has type {entry.dtype}; only {', '.join(DTYPES)} can be converted"
            raise ArtifactError(message, file=self.file, object=f"tensor {name}", offset=entry.start)
        return np.frombuffer(self._view[entry.start : entry.end], dtype=DTYPES[entry.dtype]).reshape(entry.shape)

    def _entry(self, item: Checked, begin: int) -> Entry:
        dtype, shape, offsets = item.member("dtype").text(), item.member("shape").counts(), item.member("data_offsets")
        bounds = offsets.counts()
        if len(bounds) != 2 or not bounds[0] <= bounds[1] <= len(self._view) - begin:
            raise offsets.error(f"{list(bounds)} lies outside the file's {len(self._view) - begin} bytes of data")
        if dtype not in _ITEM_BYTES:
            raise item.member("dtype").error(f"unknown type {dtype!r}")
        size_bytes = math.prod(shape) * _ITEM_BYTES[dtype]
        if size_bytes != bounds[1] - bounds[0]:
            message = f"{list(bounds)} has {bounds[1] - bounds[0]} bytes, but {dtype} {list(shape)} takes {size_bytes}"
            raise offsets.error(message)
        return Entry(dtype=dtype, shape=shape, start=begin + bounds[0], end=begin + bounds[1])

    def _check_overlaps(self) -> None:
        taken = sorted(
            (entry.start, entry.end, name) for name, entry in self.entries.items() if entry.start < entry.end
        )
        for (_, end, first), (start, _, name) in itertools.pairwise(taken):
            if start < end:
                raise ArtifactError(f"overlaps tensor {first}", file=self.file, object=f"tensor {name}", offset=start)
