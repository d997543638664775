"""Write an artifact: all volumes under temporary names first, then renamed, the entry file last.

Knows nothing of where tensors come from. Invariant: after a failure, of whatever kind, nothing of the new artifact is
left in the folder; a reader can never meet a half-written one, since an artifact begins to exist with its entry file.
Equal inputs give equal bytes.
"""

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import attrs

from ninfer.engine.artifact.directory import Directory, ResourceRecord, Stored, TensorRecord
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.formats import Array, Format, Shape
from ninfer.engine.artifact.framing import (
    DIGEST_BYTES,
    OBJECT_ALIGN_BYTES,
    PAYLOAD_ALIGN_BYTES,
    Header,
    digest,
    volume_path,
)
from ninfer.engine.artifact.layouts import Layout, align

DEFAULT_VOLUME_LIMIT_BYTES = 32_000_000_000
_PENDING = "0" * (2 * DIGEST_BYTES)
_PLACE_GROWTH_BYTES = 40  # a volume number and an offset, written as zero at first, can grow to this many digits


@attrs.frozen(kw_only=True)
class TensorSource:
    """A tensor to store: `load` gives its values (float32, bfloat16 or float16), best as a memory-mapped view."""

    name: str
    component: str
    shape: Shape
    format: Format
    layout: Layout
    load: Callable[[], Array]

    @property
    def size_bytes(self) -> int:
        """Stored bytes."""
        return self.layout.size_bytes(self.format.planes(self.shape))


@attrs.frozen(kw_only=True)
class Contents:
    """All that goes into an artifact."""

    architecture: str
    name: str | None
    components: Mapping[str, Mapping[str, object]]
    resources: Mapping[str, bytes]
    tensors: Sequence[TensorSource]
    provenance: Mapping[str, object]


@attrs.frozen
class Progress:
    """How far a conversion is."""

    done_bytes: int
    total_bytes: int
    object: str


Report = Callable[[Progress], None]
"""Called before each object and at the end. Whatever it raises ends the conversion and is passed on."""


def write_artifact(
    entry: Path,
    contents: Contents,
    *,
    volume_limit_bytes: int = DEFAULT_VOLUME_LIMIT_BYTES,
    replace: bool = False,
    report: Report = lambda progress: None,
) -> None:
    """Write `contents` as the artifact `entry`, its further volumes beside it.

    Raises:
        ArtifactError: `entry` exists and `replace` is false, an object is larger than a volume may be, or the file
            system refuses (full, read-only, missing folder).
    """
    plan = _plan(entry, contents, volume_limit_bytes)
    files = [volume_path(entry, volume) for volume in range(len(plan.payload_bytes))]
    if not replace and (existing := [file for file in files if file.exists()]):
        raise ArtifactError("exists already", file=existing[0])
    mark = f".{uuid.uuid4().hex[:12]}.tmp"
    temporary = [file.with_name(f".{file.name}{mark}") for file in files]
    renamed: list[Path] = []
    try:
        _write_volumes(entry, contents, plan, temporary, report)
        for source, target in reversed(list(zip(temporary, files, strict=True))):
            with _naming(target, None, None):
                os.replace(source, target)
            renamed.append(target)
    except BaseException:
        # With `replace` a renamed volume stands where an equal one may have been: it stays.
        for path in (*temporary, *(() if replace else renamed)):
            path.unlink(missing_ok=True)
        raise


def _plan(entry: Path, contents: Contents, limit_bytes: int) -> Directory:
    """A directory with every place fixed and every checksum pending; its JSON has the final length."""
    rough = _place(entry, contents, None, 0)
    bound = len(rough.to_json()) + _PLACE_GROWTH_BYTES * (len(rough.resources) + 2 * len(rough.tensors))
    return _place(entry, contents, limit_bytes, bound)


def _place(entry: Path, contents: Contents, limit_bytes: int | None, directory_bytes: int) -> Directory:
    """Give every object the next free place; a new volume begins where one would grow over the limit."""
    header = Header(volume=0, volumes=1, directory_bytes=directory_bytes, artifact_id=bytes(DIGEST_BYTES))
    room = None if limit_bytes is None else limit_bytes - header.payload_offset
    ends = [0]

    def next_place(name: str, size_bytes: int) -> Stored:
        nonlocal room
        start = align(ends[-1], OBJECT_ALIGN_BYTES)
        if room is not None and limit_bytes is not None and start + size_bytes > room:
            room, start = limit_bytes - PAYLOAD_ALIGN_BYTES, 0
            ends.append(0)
            if size_bytes > room:
                message = f"needs {size_bytes} bytes, which no volume of at most {limit_bytes} bytes can hold"
                raise ArtifactError(message, file=entry, object=name)
        ends[-1] = start + size_bytes
        return Stored(volume=len(ends) - 1, offset=start, size_bytes=size_bytes, checksum=_PENDING)

    if room is not None and room < 0:
        raise ArtifactError(f"the directory alone is larger than the volume limit of {limit_bytes} bytes", file=entry)
    resources = tuple(
        ResourceRecord(name=name, stored=next_place(f"resource {name}", len(data)))
        for name, data in contents.resources.items()
    )
    tensors = tuple(
        TensorRecord(
            name=source.name,
            component=source.component,
            shape=source.shape,
            format=source.format,
            layout=source.layout,
            stored=next_place(f"tensor {source.name}", source.size_bytes),
        )
        for source in contents.tensors
    )
    return Directory(
        architecture=contents.architecture,
        name=contents.name,
        components=contents.components,
        resources=resources,
        tensors=tensors,
        payload_bytes=tuple(ends),
        provenance=contents.provenance,
    )


def _write_volumes(entry: Path, contents: Contents, plan: Directory, temporary: Sequence[Path], report: Report) -> None:
    """Payloads first, then the directory with the checksums they gave, then every volume's header."""
    directory_bytes = len(plan.to_json())
    headers = [
        Header(
            volume=volume,
            volumes=len(temporary),
            directory_bytes=directory_bytes if volume == 0 else 0,
            artifact_id=bytes(DIGEST_BYTES),
        )
        for volume in range(len(temporary))
    ]
    with ExitStack() as stack:
        with _naming(entry, None, None):
            streams = [stack.enter_context(open(path, "xb", buffering=0)) for path in temporary]
        bases = [header.payload_offset for header in headers]
        checksums = _write_payload(entry, contents, plan, list(zip(streams, bases, strict=True)), report)
        data = _with_checksums(plan, checksums).to_json()
        if len(data) != directory_bytes:
            raise RuntimeError("the directory changed its length")
        with _naming(entry, "directory", 0):
            _write_at(streams[0], len(headers[0].pack()), data)
            for stream, header in zip(streams, headers, strict=True):
                _write_at(stream, 0, attrs.evolve(header, artifact_id=digest(data)).pack())
                # The payload may end in padding, or be empty: the file length counts, so it is set, not left to chance.
                stream.truncate(header.payload_offset + plan.payload_bytes[header.volume])
                os.fsync(stream.fileno())


def _write_payload(
    entry: Path,
    contents: Contents,
    plan: Directory,
    places: Sequence[tuple[BinaryIO, int]],
    report: Report,
) -> list[str]:
    """Write all objects in order; their checksums."""
    jobs: list[tuple[str, Stored, Iterator[bytes]]] = [
        (f"resource {record.name}", record.stored, iter((contents.resources[record.name],)))
        for record in plan.resources
    ]
    jobs += [
        (f"tensor {record.name}", record.stored, _pieces(source))
        for record, source in zip(plan.tensors, contents.tensors, strict=True)
    ]
    total, done = sum(stored.size_bytes for _, stored, _ in jobs), 0
    checksums = []
    for name, stored, pieces in jobs:
        report(Progress(done, total, name))
        stream, base = places[stored.volume]
        state = hashlib.blake2b(digest_size=DIGEST_BYTES)
        position = base + stored.offset
        for piece in pieces:
            with _naming(volume_path(entry, stored.volume), name, position):
                _write_at(stream, position, piece)
            state.update(piece)
            position += len(piece)
        if position != base + stored.offset + stored.size_bytes:
            raise RuntimeError(f"{name} came out {position - base - stored.offset} bytes long, not {stored.size_bytes}")
        checksums.append(state.hexdigest())
        done += stored.size_bytes
    report(Progress(total, total, "done"))
    return checksums


def _pieces(source: TensorSource) -> Iterator[bytes]:
    """The bytes of a tensor; its values are loaded when the first piece is asked for and dropped after the last."""
    yield from source.layout.pieces(source.format, source.load())


def _with_checksums(plan: Directory, checksums: Sequence[str]) -> Directory:
    cut = len(plan.resources)
    return attrs.evolve(
        plan,
        resources=tuple(
            attrs.evolve(record, stored=attrs.evolve(record.stored, checksum=checksum))
            for record, checksum in zip(plan.resources, checksums[:cut], strict=True)
        ),
        tensors=tuple(
            attrs.evolve(record, stored=attrs.evolve(record.stored, checksum=checksum))
            for record, checksum in zip(plan.tensors, checksums[cut:], strict=True)
        ),
    )


def _write_at(stream: BinaryIO, position: int, data: bytes) -> None:
    """Write all of `data` at `position`; the gap before it, if any, reads as zeros."""
    stream.seek(position)
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


@contextmanager
def _naming(file: Path, name: str | None, offset: int | None) -> Iterator[None]:
    """Turn what the file system says into an `ArtifactError` about this file and object."""
    try:
        yield
    except OSError as error:
        message = f"cannot write: {error.strerror or error}"
        raise ArtifactError(message, file=file, object=name, offset=offset) from error
