"""The directory of an artifact: what it holds and where, as records and as JSON.

Knows no payload bytes and no architecture. Invariant: in a directory that `parse_directory` returns every object lies
inside its volume's payload, none overlaps another, names are unique, and each tensor has the size that its shape,
format and layout give.
"""

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from ninfer.engine.artifact.checked import Checked, parse_json
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.formats import FORMATS, Format
from ninfer.engine.artifact.framing import DIGEST_BYTES, HEADER_BYTES, OBJECT_ALIGN_BYTES
from ninfer.engine.artifact.layouts import LAYOUTS, Layout, size_bytes


@attrs.frozen(kw_only=True)
class Stored:
    """Where an object's bytes are: `offset` counts from the start of the payload of volume `volume`."""

    volume: int
    offset: int
    size_bytes: int
    checksum: str
    """BLAKE2b of the bytes, 16 bytes as hex."""


@attrs.frozen(kw_only=True)
class TensorRecord:
    """A stored tensor."""

    name: str
    component: str
    shape: tuple[int, ...]
    format: Format
    layout: Layout
    stored: Stored
    relative_error: float | None = None
    """||stored - given|| / ||given|| of the conversion that wrote it, to three digits, where that was measured."""


@attrs.frozen(kw_only=True)
class ResourceRecord:
    """A file stored verbatim."""

    name: str
    stored: Stored


@attrs.frozen(kw_only=True)
class Directory:
    """Everything that an artifact says of itself."""

    architecture: str
    name: str | None
    """metadata.name: the public model name."""
    components: Mapping[str, Mapping[str, object]]
    """Component name to its config."""
    resources: tuple[ResourceRecord, ...]
    tensors: tuple[TensorRecord, ...]
    payload_bytes: tuple[int, ...]
    """Payload size of each volume."""
    provenance: Mapping[str, object]

    def to_json(self) -> bytes:
        """The bytes in the file: compact ASCII JSON."""
        value = {
            "architecture": self.architecture,
            "metadata": {} if self.name is None else {"name": self.name},
            "components": {name: {"config": config} for name, config in self.components.items()},
            "resources": [{"name": record.name} | _place_json(record.stored) for record in self.resources],
            "tensors": [
                {
                    "name": record.name,
                    "component": record.component,
                    "shape": record.shape,
                    "format": record.format.name,
                    "layout": record.layout.name,
                }
                | _error_json(record.relative_error)
                | _place_json(record.stored)
                for record in self.tensors
            ],
            "volumes": [{"payload_bytes": size} for size in self.payload_bytes],
            "provenance": self.provenance,
        }
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def parse_directory(data: bytes, file: Path) -> Directory:
    """Read the directory of the artifact whose entry file is `file`.

    Raises:
        ArtifactError: not JSON, a member missing or of the wrong type, or an object where none can be.
    """
    root = parse_json(data, file=file, object="directory", offset=HEADER_BYTES)
    metadata = root.member("metadata")
    directory = Directory(
        architecture=root.member("architecture").label(),
        name=metadata.member("name").label() if metadata.has("name") else None,
        components={
            Checked(name, value.path, file).label(): value.member("config").object()
            for name, value in root.member("components").members()
        },
        resources=tuple(_resource(item) for item in root.member("resources").items()),
        tensors=tuple(_tensor(item) for item in root.member("tensors").items()),
        payload_bytes=tuple(item.member("payload_bytes").count() for item in root.member("volumes").items()),
        provenance=root.member("provenance").object(),
    )
    for record in directory.tensors:
        if record.component not in directory.components:
            message = f"belongs to component {record.component!r}, which the directory does not list"
            raise ArtifactError(message, file=file, object=f"tensor {record.name}", offset=HEADER_BYTES)
    _check_places(directory, file)
    return directory


def _place_json(stored: Stored) -> dict[str, object]:
    return {
        "volume": stored.volume,
        "offset": stored.offset,
        "bytes": stored.size_bytes,
        "checksum": stored.checksum,
    }


def _error_json(error: float | None) -> dict[str, object]:
    """As text, so that a directory has its final length before the first error is known."""
    return {} if error is None else {"relative_error": f"{error:.2e}"}


def _error(item: Checked) -> float | None:
    if not item.has("relative_error"):
        return None
    member = item.member("relative_error")
    if not re.fullmatch(r"\d\.\d\de[+-]\d\d", member.text()):
        raise member.error("must be a number written like 9.51e-02")
    return float(member.text())


def _stored(item: Checked) -> Stored:
    checksum = item.member("checksum")
    text = checksum.text()
    if len(text) != 2 * DIGEST_BYTES or not set(text) <= set("0123456789abcdef"):
        raise checksum.error(f"must be {2 * DIGEST_BYTES} lower-case hexadecimal digits")
    return Stored(
        volume=item.member("volume").count(),
        offset=item.member("offset").count(),
        size_bytes=item.member("bytes").count(),
        checksum=text,
    )


def _resource(item: Checked) -> ResourceRecord:
    return ResourceRecord(name=item.member("name").label(), stored=_stored(item))


def _tensor(item: Checked) -> TensorRecord:
    form, layout = item.member("format"), item.member("layout")
    if form.text() not in FORMATS:
        raise form.error(f"unknown numeric format {form.text()!r}, this build reads {', '.join(FORMATS)}")
    if layout.text() not in LAYOUTS:
        raise layout.error(f"unknown layout {layout.text()!r}, this build reads {', '.join(LAYOUTS)}")
    record = TensorRecord(
        name=item.member("name").label(),
        component=item.member("component").text(),
        shape=item.member("shape").counts(),
        format=FORMATS[form.text()],
        layout=LAYOUTS[layout.text()],
        stored=_stored(item),
        relative_error=_error(item),
    )
    try:
        needed_bytes = size_bytes(record.layout.stored(record.format, record.shape))
    except ValueError as error:
        raise item.member("shape").error(str(error)) from None
    if needed_bytes != record.stored.size_bytes:
        kind = f"{record.format.name}, {record.layout.name}"
        message = f"is {record.stored.size_bytes}, but shape {list(record.shape)} in {kind} takes {needed_bytes}"
        raise item.member("bytes").error(message)
    return record


def _check_places(directory: Directory, file: Path) -> None:
    """Refuse repeated names, objects outside their volume, off the alignment or over one another."""
    named = [(f"resource {record.name}", record.stored) for record in directory.resources]
    named += [(f"tensor {record.name}", record.stored) for record in directory.tensors]
    seen: set[str] = set()
    for name, stored in named:
        if name in seen:
            raise ArtifactError("is listed twice", file=file, object=name, offset=HEADER_BYTES)
        seen.add(name)
        if stored.volume >= len(directory.payload_bytes):
            message = f"lies in volume {stored.volume} of {len(directory.payload_bytes)}"
            raise ArtifactError(message, file=file, object=name, offset=HEADER_BYTES)
        if stored.offset % OBJECT_ALIGN_BYTES:
            message = f"payload offset {stored.offset} is no multiple of {OBJECT_ALIGN_BYTES}"
            raise ArtifactError(message, file=file, object=name, offset=HEADER_BYTES)
        if stored.offset + stored.size_bytes > directory.payload_bytes[stored.volume]:
            message = (
                f"payload bytes {stored.offset} to {stored.offset + stored.size_bytes} lie outside volume"
                f" {stored.volume}, whose payload has {directory.payload_bytes[stored.volume]}"
            )
            raise ArtifactError(message, file=file, object=name, offset=HEADER_BYTES)
    _check_overlaps(named, file)


def _check_overlaps(named: list[tuple[str, Stored]], file: Path) -> None:
    taken = sorted(named, key=lambda entry: (entry[1].volume, entry[1].offset, entry[1].size_bytes))
    for (first_name, first), (name, stored) in itertools.pairwise(taken):
        if stored.volume == first.volume and stored.offset < first.offset + first.size_bytes:
            message = f"overlaps {first_name} at payload offset {stored.offset} of volume {stored.volume}"
            raise ArtifactError(message, file=file, object=name, offset=HEADER_BYTES)
