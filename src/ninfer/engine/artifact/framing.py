"""The fixed header that every file of an artifact begins with (docs/artifact.md has the table).

Knows nothing of tensors. Invariant: a header that `read_header` accepts is one that `Header.pack` wrote.
"""

import hashlib
import struct
from pathlib import Path

import attrs

from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.foreign import HEAD_BYTES, mistaken_file

MAGIC = b"\x93NINFER\n"  # not text, and the last byte shows a newline conversion
VERSION = 1
HEADER_BYTES = 64
PAYLOAD_ALIGN_BYTES = 4096
OBJECT_ALIGN_BYTES = 256
MAX_DIRECTORY_BYTES = 256 << 20
DIGEST_BYTES = 16

_FIELDS = struct.Struct("<8sIIIIQ16s")
_SEAL_BYTES = HEADER_BYTES - _FIELDS.size


def digest(data: bytes) -> bytes:
    """The 16-byte checksum used for directories; objects use the same function piece by piece."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


@attrs.frozen(kw_only=True)
class Header:
    """What a file says of itself. `artifact_id` is the digest of the directory and the same in all volumes."""

    volume: int
    volumes: int
    directory_bytes: int
    artifact_id: bytes

    @property
    def content_bytes(self) -> int:
        """Header and directory; up to the payload there is padding."""
        return HEADER_BYTES + self.directory_bytes

    @property
    def payload_offset(self) -> int:
        """File offset of the payload: the first multiple of 4096 after header and directory."""
        return -(-self.content_bytes // PAYLOAD_ALIGN_BYTES) * PAYLOAD_ALIGN_BYTES

    def pack(self) -> bytes:
        """The 64 bytes in the file."""
        head = _FIELDS.pack(MAGIC, VERSION, self.volume, self.volumes, 0, self.directory_bytes, self.artifact_id)
        return head + _seal(head)


def read_header(data: memoryview, file: Path) -> Header:
    """Check the first 64 bytes of `data`, a whole file.

    Raises:
        ArtifactError: no artifact, a newer one, or a damaged header.
    """
    if not data or bytes(data[: len(MAGIC)]) != MAGIC[: len(data)]:
        foreign = mistaken_file(bytes(data[:HEAD_BYTES]))
        raise ArtifactError(foreign or "not a .ninfer file: wrong magic", file=file, object="header", offset=0)
    if len(data) < HEADER_BYTES:
        message = f"truncated: {len(data)} bytes, the header alone has {HEADER_BYTES}"
        raise ArtifactError(message, file=file, object="header", offset=len(data))
    head = bytes(data[: _FIELDS.size])
    _, version, volume, volumes, reserved, directory_bytes, artifact_id = _FIELDS.unpack(head)
    if version != VERSION:
        message = f"container version {version}, this build reads version {VERSION}"
        raise ArtifactError(message, file=file, object="header", offset=8)
    if data[_FIELDS.size : HEADER_BYTES] != _seal(head):
        raise ArtifactError("header checksum mismatch", file=file, object="header", offset=_FIELDS.size)
    if reserved or volume >= volumes or bool(directory_bytes) != (volume == 0) or directory_bytes > MAX_DIRECTORY_BYTES:
        raise ArtifactError("the header contradicts itself", file=file, object="header", offset=12)
    return Header(volume=volume, volumes=volumes, directory_bytes=directory_bytes, artifact_id=artifact_id)


def volume_path(entry: Path, volume: int) -> Path:
    """Where volume `volume` of the artifact at `entry` lies: beside it, named after it."""
    return entry if volume == 0 else entry.with_name(f"{entry.name}.part{volume:04d}")


def _seal(head: bytes) -> bytes:
    return hashlib.blake2b(head, digest_size=_SEAL_BYTES).digest()
