"""Where every object of a new artifact will lie: the directory before the first byte of payload is written.

Knows no files. Invariant: the JSON of a plan has its final length, whatever checksums and errors come into it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from ninfer.engine.artifact.directory import Directory, ResourceRecord, Stored, TensorRecord
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.framing import DIGEST_BYTES, OBJECT_ALIGN_BYTES, PAYLOAD_ALIGN_BYTES, Header
from ninfer.engine.artifact.layouts import align
from ninfer.engine.artifact.tensor_source import TensorSource

_PENDING = "0" * (2 * DIGEST_BYTES)
_PLACE_GROWTH_BYTES = 40  # a volume number and an offset, written as zero at first, can grow to this many digits


@attrs.frozen(kw_only=True)
class Contents:
    """All that goes into an artifact."""

    architecture: str
    name: str | None
    components: Mapping[str, Mapping[str, object]]
    resources: Mapping[str, bytes]
    tensors: Sequence[TensorSource]
    provenance: Mapping[str, object]


@attrs.frozen(kw_only=True)
class Finished:
    """What is known of an object once its bytes are there."""

    checksum: str
    relative_error: float | None = None


def plan_places(entry: Path, contents: Contents, limit_bytes: int) -> Directory:
    """A directory with every place fixed and every checksum pending.

    Raises:
        ArtifactError: an object, or the directory, is larger than a volume may be.
    """
    rough = _place(entry, contents, None, 0)
    bound = len(rough.to_json()) + _PLACE_GROWTH_BYTES * (len(rough.resources) + 2 * len(rough.tensors))
    return _place(entry, contents, limit_bytes, bound)


def with_finished(plan: Directory, finished: Sequence[Finished]) -> Directory:
    """The plan with what came out, resources first, in order."""
    cut = len(plan.resources)
    return attrs.evolve(
        plan,
        resources=tuple(
            attrs.evolve(record, stored=attrs.evolve(record.stored, checksum=done.checksum))
            for record, done in zip(plan.resources, finished[:cut], strict=True)
        ),
        tensors=tuple(
            attrs.evolve(
                record,
                stored=attrs.evolve(record.stored, checksum=done.checksum),
                relative_error=done.relative_error,
            )
            for record, done in zip(plan.tensors, finished[cut:], strict=True)
        ),
    )


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
            relative_error=0.0 if source.measured else None,
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
