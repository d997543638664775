"""The files of an artifact while it is being written: their temporary names, locks, and what of them is finished.

Knows nothing of directories and tensors. Two kinds: files that are thrown away whatever goes wrong, and files that stay
with a journal of finished objects, so that a later attempt with the same key can go on. Invariant: nobody takes, reads
or removes temporary files that a living process has open, because each of them is locked for as long as it is.
"""

import fcntl
import glob
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import attrs

from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.framing import DIGEST_BYTES, digest, volume_path
from ninfer.engine.artifact.placing import Finished

READ_PIECE_BYTES = 8 << 20
THROWN_AWAY = ".tmp"
KEPT = ".partial"
JOURNAL = ".partial.journal"


@attrs.frozen(kw_only=True)
class Partial:
    """Open temporary files, one for each volume."""

    paths: Sequence[Path]
    streams: Sequence[BinaryIO]
    journal: BinaryIO | None
    known: Mapping[str, Finished]
    """Objects that an earlier attempt finished, as its journal says."""

    def write(self, volume: int, position: int, data: memoryview) -> None:
        """Write all of `data` at `position` of a volume. What lies between is the caller's to write, with `zeros`."""
        stream = self.streams[volume]
        stream.seek(position)
        while data:
            data = data[stream.write(data) :]

    def zeros(self, volume: int, start: int, end: int) -> None:
        """Write padding. A gap that is left out has whatever an earlier attempt, or a failing disk, put there."""
        self.write(volume, start, memoryview(bytes(end - start)))

    def checksum(self, volume: int, position: int, size_bytes: int) -> str:
        """The digest of what the file really holds there, or of less if it is shorter."""
        state = hashlib.blake2b(digest_size=DIGEST_BYTES)
        descriptor, end = self.streams[volume].fileno(), position + size_bytes
        while position < end and (piece := os.pread(descriptor, min(READ_PIECE_BYTES, end - position), position)):
            state.update(piece)
            position += len(piece)
        return state.hexdigest()

    def finish(self, name: str, finished: Finished) -> None:
        """Note that an object's bytes are all there."""
        if self.journal is not None:
            line = {"object": name, "checksum": finished.checksum, "relative_error": finished.relative_error}
            self.journal.write(json.dumps(line | {"seal": _seal(line)}).encode() + b"\n")

    def remove(self) -> None:
        """Take away what is left under temporary names."""
        for path in self.paths:
            path.unlink(missing_ok=True)


@contextmanager
def thrown_away(entry: Path, volumes: int) -> Iterator[Partial]:
    """Fresh files that vanish unless they are renamed."""
    remove_abandoned(entry.parent, glob.escape(entry.name))
    mark = f".{uuid.uuid4().hex[:12]}{THROWN_AWAY}"
    paths = _paths(entry, volumes, mark)
    with ExitStack() as stack:
        partial = Partial(paths=paths, streams=[], journal=None, known={})
        stack.callback(partial.remove)
        streams = [stack.enter_context(_create(path)) for path in paths]
        yield attrs.evolve(partial, streams=streams)


@contextmanager
def kept(entry: Path, volumes: int, key: str) -> Iterator[Partial]:
    """Files that stay after a failure, with the finished objects of an earlier attempt that had the same `key`.

    What attempts with another key left is removed.

    Raises:
        ArtifactError: another process is writing this artifact.
    """
    remove_abandoned(entry.parent, glob.escape(entry.name))
    with ExitStack() as stack:
        journal_path = entry.with_name(f".{entry.name}{JOURNAL}")
        journal = stack.enter_context(_open_journal(entry, journal_path))
        known = _read_journal(journal, key)
        if not known:
            for path in kept_files(entry):
                path.unlink(missing_ok=True)
            journal.write(json.dumps({"key": key}).encode() + b"\n")
        paths = _paths(entry, volumes, KEPT)
        descriptors = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666) for path in paths]
        streams = [stack.enter_context(open(descriptor, "r+b", buffering=0)) for descriptor in descriptors]
        yield Partial(paths=paths, streams=streams, journal=journal, known=known)
        journal_path.unlink()


def kept_files(entry: Path) -> list[Path]:
    """What an unfinished attempt at `entry` left to go on from."""
    return [
        path
        for path in (*_matching(entry, f".part*{KEPT}"), entry.with_name(f".{entry.name}{KEPT}"))
        if os.path.exists(path)  # unlike `Path.exists` also false for a name that is too long
    ]


def remove_abandoned(folder: Path, name: str) -> None:
    """Remove temporary files whose process went without cleaning up: killed, or the power failed.

    Of all artifacts in `folder` whose names match the shell pattern `name`.
    """
    for path in folder.glob(f".{name}.*{THROWN_AWAY}"):
        try:
            with open(path, "rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        except OSError:
            continue  # somebody holds it, has just removed it, or the file system knows no locks


def _paths(entry: Path, volumes: int, ending: str) -> list[Path]:
    names = [volume_path(entry, volume).name for volume in range(volumes)]
    return [entry.with_name(f".{name}{ending}") for name in names]


def _matching(entry: Path, ending: str) -> list[Path]:
    return sorted(entry.parent.glob(f".{glob.escape(entry.name)}{ending}"))


@contextmanager
def _create(path: Path) -> Iterator[BinaryIO]:
    """A new file, locked. Between creation and lock `remove_abandoned` of another process may take it: then anew."""
    while True:
        with open(path, "x+b", buffering=0) as stream:
            _lock(stream, fcntl.LOCK_EX)
            if os.fstat(stream.fileno()).st_nlink:
                yield stream
                return


@contextmanager
def _open_journal(entry: Path, path: Path) -> Iterator[BinaryIO]:
    """The journal, locked. Whoever held the lock before may have finished and removed the file: then anew."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with open(descriptor, "r+b", buffering=0) as stream:
            try:
                _lock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ArtifactError("another process is writing this artifact", file=entry) from None
            if os.fstat(stream.fileno()).st_nlink:
                yield stream
                return


def _lock(stream: BinaryIO, kind: int) -> None:
    try:
        fcntl.flock(stream, kind)
    except BlockingIOError:
        raise
    except OSError:
        return  # no locks on this file system: nobody else will believe the file abandoned either


def _seal(line: Mapping[str, object]) -> str:
    """What a line of the journal ends with: bits that fell over in it would go into the artifact."""
    return digest(json.dumps(line).encode()).hex()


def _read_journal(journal: BinaryIO, key: str) -> dict[str, Finished]:
    """What an attempt with `key` finished; the journal is cut where it stops making sense, if need be to nothing."""
    known: dict[str, Finished] = {}
    good_bytes = 0
    for number, line in enumerate(journal.read().splitlines(keepends=True)):
        try:
            value = json.loads(line)
            if number and line.endswith(b"\n"):
                if value.pop("seal") != _seal(value):
                    break
                known[value["object"]] = Finished(checksum=value["checksum"], relative_error=value["relative_error"])
            elif value != {"key": key}:
                break
        except (ValueError, KeyError, TypeError, AttributeError):
            break
        good_bytes += len(line)
    good_bytes = good_bytes if known else 0
    journal.truncate(good_bytes)
    journal.seek(good_bytes)
    return known
