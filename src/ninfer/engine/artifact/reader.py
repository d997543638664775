"""Read an artifact: headers and directory at once, everything else memory-mapped when asked for.

Knows which tensors an architecture must have (`expected.py`); does not know what they are used for. Invariant: an open
artifact has all its volumes, of the right size and from one conversion, and every component it lists is complete. The
bytes of tensors are compared with their checksums by `verify` and `check_tensor` alone, so that opening reads little.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import attrs
import numpy as np
from numpy.typing import NDArray

from ninfer.engine.artifact.directory import Directory, Stored, TensorRecord, parse_directory
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.expected import check_components
from ninfer.engine.artifact.formats import Array, Shape
from ninfer.engine.artifact.framing import DIGEST_BYTES, HEADER_BYTES, Header, digest, read_header, volume_path
from ninfer.engine.artifact.layouts import views
from ninfer.engine.artifact.mapping import map_file

VERIFY_PIECE_BYTES = 8 << 20


@attrs.frozen(kw_only=True)
class Facts:
    """What the stored weights of some components amount to."""

    parameters: int
    """Distinct logical weight elements: a tied head counts once."""
    weight_bytes: int
    dominant_format: str
    """The numeric format with the most bytes."""


@attrs.frozen(kw_only=True)
class PackedTensor:
    """A tensor in its stored form."""

    shape: Shape
    """The logical shape."""
    format: str
    layout: str
    planes: Mapping[str, Array]
    """Plane name to array; the first axis grows with the rows."""


@attrs.frozen
class _Volume:
    file: Path
    header: Header
    view: memoryview
    """The whole file."""


class Artifact:
    """An open artifact. Use it as a context manager; arrays taken from it stay valid after it is closed."""

    def __init__(self, file: Path, directory: Directory, volumes: tuple[_Volume, ...]) -> None:
        """For `open`, which checks what it passes."""
        self.file = file
        self._directory = directory
        self._volumes = volumes
        self._id = volumes[0].header.artifact_id
        self._tensors: Mapping[str, TensorRecord] = MappingProxyType(
            {record.name: record for record in directory.tensors}
        )

    @classmethod
    def open(cls, file: Path) -> Self:
        """Open the artifact whose entry file is `file`. Reads headers and directory, not the weights.

        Raises:
            ArtifactError: missing, damaged, newer, incomplete, or of an architecture this build does not know.
        """
        entry = _open_volume(file)
        directory = parse_directory(_directory_bytes(entry), file)
        if len(directory.payload_bytes) != entry.header.volumes:
            message = f"lists {len(directory.payload_bytes)} volumes, the header {entry.header.volumes}"
            raise ArtifactError(message, file=file, object="directory.volumes", offset=HEADER_BYTES)
        check_components(directory, file)
        volumes = (entry, *(_open_continuation(entry, index) for index in range(1, entry.header.volumes)))
        for volume, payload_bytes in zip(volumes, directory.payload_bytes, strict=True):
            _check_length(volume, payload_bytes)
        return cls(file, directory, volumes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files. A mapping goes when the last array taken from it does."""
        self._volumes = ()

    @property
    def name(self) -> str | None:
        """metadata.name, the public model name, or None."""
        return self._directory.name

    @property
    def id(self) -> str:
        """The artifact's identity: the digest of its directory, and so of every checksum in it, as hex."""
        return self._id.hex()

    @property
    def architecture(self) -> str:
        """The architecture of the text component, such as `qwen3_5`."""
        return self._directory.architecture

    @property
    def directory(self) -> Directory:
        """All records."""
        return self._directory

    @property
    def components(self) -> tuple[str, ...]:
        """The names of the components, `text` among them."""
        return tuple(self._directory.components)

    def config(self, component: str) -> Mapping[str, object]:
        """The config of a component.

        Raises:
            ArtifactError: the artifact has no such component.
        """
        if component not in self._directory.components:
            message = f"the artifact has no component {component!r}, only {', '.join(self.components)}"
            raise ArtifactError(message, file=self.file, object="directory.components", offset=HEADER_BYTES)
        return self._directory.components[component]

    def resource(self, name: str) -> bytes | None:
        """The bytes of a resource such as `tokenizer.json`, or None. Its checksum is compared each time.

        Raises:
            ArtifactError: the stored bytes are not the ones that were written.
        """
        for record in self._directory.resources:
            if record.name == name:
                self._check(f"resource {name}", record.stored)
                return bytes(self._bytes(record.stored))
        return None

    @property
    def tensors(self) -> Mapping[str, TensorRecord]:
        """All tensor records by logical name."""
        return self._tensors

    def read(self, name: str) -> NDArray[np.float32]:
        """The float32 values of a tensor, in its logical shape. A read-only view of the file for fp32."""
        record = self._record(name)
        return record.format.decode(self.planes(name))

    def planes(self, name: str) -> tuple[Array, ...]:
        """The natural planes of a tensor (see `Format.planes`), read-only views where they are stored as such."""
        record = self._record(name)
        return record.layout.unpack(record.format, record.shape, tuple(self.packed(name).planes.values()))

    def packed(self, name: str) -> PackedTensor:
        """A tensor as it is stored, for a device: no byte is moved, planes are read-only views of the file.

        With layout `fragment` the planes have the names, shapes and types of one matrix of
        `kernels_pallas.arrays.PackedMatrix`; matrices with one input merge by concatenation of each plane along its
        first axis. `tensors[name]` tells format, layout and shape beforehand.
        """
        record = self._record(name)
        planes = record.layout.stored(record.format, record.shape)
        stored = views(self._bytes(record.stored), planes)
        return PackedTensor(
            shape=record.shape,
            format=record.format.name,
            layout=record.layout.name,
            planes={plane.name: array for plane, array in zip(planes, stored, strict=True)},
        )

    def facts(self, *components: str) -> Facts:
        """Figures over the named components, or over all of them when none is named."""
        chosen = components or self.components
        records = [record for record in self._directory.tensors if record.component in chosen]
        sizes: Counter[str] = Counter()
        for record in records:
            sizes[record.format.name] += record.stored.size_bytes
        return Facts(
            parameters=sum(math.prod(record.shape) for record in records),
            weight_bytes=sizes.total(),
            dominant_format=max(sizes, key=lambda name: (sizes[name], name)),
        )

    def check_tensor(self, name: str, go_on: Callable[[], bool] = lambda: True) -> None:
        """Compare a tensor's bytes with their checksum, piece by piece for as long as `go_on` says so.

        Raises:
            ArtifactError: they are not what was written.
        """
        self._check(f"tensor {name}", self._record(name).stored, go_on)

    def verify(self) -> Iterator[str]:
        """Compare everything stored with its checksum; yields each object's name once it is found good.

        Raises:
            ArtifactError: at the first object, or padding between objects, that is not what was written.
        """
        ends = dict.fromkeys(range(len(self._volumes)), 0)
        for name, stored in sorted(self._objects(), key=lambda item: (item[1].volume, item[1].offset)):
            self._check_padding(stored.volume, ends[stored.volume], stored.offset)
            self._check(name, stored)
            ends[stored.volume] = stored.offset + stored.size_bytes
            yield name
        for volume, end in ends.items():
            self._check_padding(volume, end, self._directory.payload_bytes[volume])

    def file_offset(self, stored: Stored) -> int:
        """Where an object begins in the file of its volume."""
        return self._volumes[stored.volume].header.payload_offset + stored.offset

    def _objects(self) -> Iterator[tuple[str, Stored]]:
        yield from ((f"resource {record.name}", record.stored) for record in self._directory.resources)
        yield from ((f"tensor {record.name}", record.stored) for record in self._directory.tensors)

    def _record(self, name: str) -> TensorRecord:
        if name not in self._tensors:
            raise ArtifactError("the artifact has no such tensor", file=self.file, object=f"tensor {name}")
        return self._tensors[name]

    def _bytes(self, stored: Stored) -> memoryview:
        if not self._volumes:
            raise ValueError(f"{self.file}: the artifact is closed")
        start = self.file_offset(stored)
        return self._volumes[stored.volume].view[start : start + stored.size_bytes]

    def _check(self, name: str, stored: Stored, go_on: Callable[[], bool] = lambda: True) -> None:
        data = self._bytes(stored)
        state = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for start in range(0, len(data), VERIFY_PIECE_BYTES):
            if not go_on():
                return
            state.update(data[start : start + VERIFY_PIECE_BYTES])
        if state.hexdigest() != stored.checksum:
            file = self._volumes[stored.volume].file
            raise ArtifactError("checksum mismatch", file=file, object=name, offset=self.file_offset(stored))

    def _check_padding(self, volume: int, start: int, end: int) -> None:
        """Payload bytes `start` to `end` must be zero, and before the first object all after the directory too."""
        place = self._volumes[volume]
        begin = place.header.payload_offset + start if start else place.header.content_bytes
        padding = bytes(place.view[begin : place.header.payload_offset + end])
        if padding.strip(b"\0"):
            at = begin + len(padding) - len(padding.lstrip(b"\0"))
            raise ArtifactError("padding is not zero", file=place.file, object="padding", offset=at)


def _open_volume(file: Path) -> _Volume:
    view = map_file(file)
    return _Volume(file, read_header(view, file), view)


def _directory_bytes(entry: _Volume) -> bytes:
    """The directory of an entry file, with its digest checked."""
    header, file = entry.header, entry.file
    if header.volume != 0:
        message = f"this is volume {header.volume}; open the artifact's first file"
        raise ArtifactError(message, file=file, object="header", offset=12)
    if len(entry.view) < header.content_bytes:
        message = f"truncated: {len(entry.view)} bytes, the directory ends at {header.content_bytes}"
        raise ArtifactError(message, file=file, object="directory", offset=len(entry.view))
    data = bytes(entry.view[HEADER_BYTES : header.content_bytes])
    if digest(data) != header.artifact_id:
        raise ArtifactError("directory checksum mismatch", file=file, object="directory", offset=HEADER_BYTES)
    return data


def _open_continuation(entry: _Volume, index: int) -> _Volume:
    """Volume `index` of the artifact that `entry` begins."""
    volume = _open_volume(volume_path(entry.file, index))
    found, header = volume.header, entry.header
    if found.artifact_id != header.artifact_id:
        message = f"is a volume of another artifact than {entry.file.name}"
        raise ArtifactError(message, file=volume.file, object="header", offset=32)
    if (found.volume, found.volumes) != (index, header.volumes):
        message = f"is volume {found.volume} of {found.volumes}, not {index} of {header.volumes}"
        raise ArtifactError(message, file=volume.file, object="header", offset=12)
    return volume


def _check_length(volume: _Volume, payload_bytes: int) -> None:
    expected, found = volume.header.payload_offset + payload_bytes, len(volume.view)
    if found != expected:
        kind = "truncated" if found < expected else "too long"
        message = f"{kind}: {found} bytes, the directory says {expected}"
        raise ArtifactError(message, file=volume.file, object="payload", offset=min(found, expected))
