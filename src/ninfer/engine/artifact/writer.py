"""Write an artifact: all volumes under temporary names first, then renamed, the entry file last.

Knows nothing of where tensors come from. Invariant: a reader can never meet a half-written artifact, since it begins to
exist with its entry file. After a failure, of whatever kind, nothing of it is left in the folder, unless the caller
gave a key: then what was finished is kept under temporary names, and the next attempt with that key compares it with
its checksums and goes on from there (`partial.py`). Equal inputs give equal bytes, in one attempt or in several.
"""

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import numpy as np

from ninfer.engine.artifact.directory import Directory, Stored
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.formats import Plane
from ninfer.engine.artifact.framing import DIGEST_BYTES, HEADER_BYTES, Header, digest, volume_path
from ninfer.engine.artifact.layouts import paddings, places
from ninfer.engine.artifact.mapping import exists
from ninfer.engine.artifact.partial import Partial, kept, thrown_away
from ninfer.engine.artifact.placing import Contents, Finished, plan_places, with_finished
from ninfer.engine.artifact.tensor_source import StoredRows, TensorSource

DEFAULT_VOLUME_LIMIT_BYTES = 32_000_000_000
PIECE_BYTES = 2 << 20
"""About how many bytes of float32 values are encoded at once: bounds the memory, and fits a core's cache."""
MAX_WORKERS = 32


@attrs.frozen
class Progress:
    """How far a conversion is."""

    done_bytes: int
    total_bytes: int
    object: str


Report = Callable[[Progress], None]
"""Called before each object, often during one, and at the end. What it raises ends the conversion and is passed on."""


@attrs.frozen(kw_only=True)
class Written:
    """What came of writing."""

    relative_errors: Mapping[str, float]
    """By tensor name, where it was measured."""
    resumed_bytes: int
    """Stored bytes that an earlier attempt had finished."""


def write_artifact(
    entry: Path,
    contents: Contents,
    *,
    volume_limit_bytes: int = DEFAULT_VOLUME_LIMIT_BYTES,
    replace: bool = False,
    resume_key: str | None = None,
    workers: int | None = None,
    report: Report = lambda progress: None,
) -> Written:
    """Write `contents` as the artifact `entry`, its further volumes beside it.

    `resume_key` stands for everything that the bytes depend on; with it a failed attempt can be gone on with. `workers`
    threads encode, by default one for each core; memory is bounded for each of them.

    Raises:
        ArtifactError: `entry` exists and `replace` is false, an object is larger than a volume may be, a tensor cannot
            be stored, the file system refuses (full, read-only, missing folder), or, with a `resume_key`, another
            process is writing it.
    """
    plan = plan_places(entry, contents, volume_limit_bytes)
    volumes = len(plan.payload_bytes)
    files = [volume_path(entry, volume) for volume in range(volumes)]
    if not replace and (existing := [file for file in files if exists(file)]):
        raise ArtifactError("exists already", file=existing[0])
    renamed: list[Path] = []
    with ExitStack() as stack:
        with _naming(entry, None, None):
            temporary = thrown_away(entry, volumes) if resume_key is None else kept(entry, volumes, resume_key)
            partial = stack.enter_context(temporary)
        try:
            written = _Writing(entry, plan, partial, report).run(
                contents, workers or min(os.cpu_count() or 1, MAX_WORKERS)
            )
            for source, target in reversed(list(zip(partial.paths, files, strict=True))):
                with _naming(target, None, None):
                    os.replace(source, target)
                renamed.append(target)
        except BaseException:
            # With `replace` a renamed volume stands where an equal one may have been: it stays.
            for path in () if replace else renamed:
                path.unlink(missing_ok=True)
            raise
    return written


class _Writing:
    """One attempt: payloads first, then the directory with the checksums they gave, then every volume's header.

    What was written is read back for its checksum by other threads while the next objects are written.
    """

    def __init__(self, entry: Path, plan: Directory, partial: Partial, report: Report) -> None:
        self._entry = entry
        self._plan = plan
        self._partial = partial
        self._report = report
        self._directory_bytes = len(plan.to_json())
        self._headers = [self._header(volume, bytes(DIGEST_BYTES)) for volume in range(len(plan.payload_bytes))]
        self._total_bytes = sum(record.stored.size_bytes for record in plan.resources)
        self._total_bytes += sum(record.stored.size_bytes for record in plan.tensors)
        self._ends = [header.content_bytes for header in self._headers]
        """File offset behind the last object of each volume so far: padding begins there."""
        self._done_bytes = 0
        self._resumed_bytes = 0
        self._unread: deque[tuple[str, float | None, Future[str]]] = deque()
        self._finished: list[Finished] = []

    def run(self, contents: Contents, workers: int) -> Written:
        """Write everything under the temporary names."""
        with ThreadPoolExecutor(workers, "encode") as pool:
            try:
                for resource in self._plan.resources:
                    content = contents.resources[resource.name]
                    self._object(f"resource {resource.name}", resource.stored, content, pool)
                for tensor, source in zip(self._plan.tensors, contents.tensors, strict=True):
                    encoding = _Encoding(source, pool, 2 * workers)
                    self._object(f"tensor {tensor.name}", tensor.stored, encoding, pool)
                    self._settle(keep=workers)
            finally:
                self._settle(keep=0)
        self._report(Progress(self._total_bytes, self._total_bytes, "done"))
        plan = with_finished(self._plan, self._finished)
        self._close(plan)
        errors = {record.name: record.relative_error for record in plan.tensors}
        return Written(
            relative_errors={name: error for name, error in errors.items() if error is not None},
            resumed_bytes=self._resumed_bytes,
        )

    def _header(self, volume: int, artifact_id: bytes) -> Header:
        return Header(
            volume=volume,
            volumes=len(self._plan.payload_bytes),
            directory_bytes=0 if volume else self._directory_bytes,
            artifact_id=artifact_id,
        )

    def _object(self, name: str, stored: Stored, content: "bytes | _Encoding", pool: ThreadPoolExecutor) -> None:
        """Write one object, unless an earlier attempt has done so, and have its checksum made."""
        before, position = self._done_bytes, self._headers[stored.volume].payload_offset + stored.offset
        self._report(Progress(before, self._total_bytes, name))
        file = volume_path(self._entry, stored.volume)
        with _naming(file, name, position):
            self._partial.zeros(stored.volume, self._ends[stored.volume], position)
        self._ends[stored.volume] = position + stored.size_bytes

        def checksum() -> str:
            with _naming(file, name, position):
                return self._partial.checksum(stored.volume, position, stored.size_bytes)

        known = self._partial.known.get(name)
        if known is not None and known.checksum == checksum():
            self._settle(keep=0)  # in order
            self._finished.append(known)
            self._resumed_bytes += stored.size_bytes
        else:
            relative_error = None
            if isinstance(content, bytes):
                with _naming(file, name, position):
                    self._partial.write(stored.volume, position, memoryview(content))
            else:
                relative_error = self._tensor(file, name, stored.volume, position, content)
            self._unread.append((name, relative_error, pool.submit(checksum)))
        self._done_bytes = before + stored.size_bytes

    def _settle(self, *, keep: int) -> None:
        """Take the checksums of all but the last `keep` objects, waiting for them."""
        while len(self._unread) > keep:
            name, relative_error, checksum = self._unread.popleft()
            finished = Finished(checksum=checksum.result(), relative_error=relative_error)
            with _naming(self._entry, name, None):
                self._partial.finish(name, finished)
            self._finished.append(finished)

    def _tensor(self, file: Path, name: str, volume: int, position: int, encoding: "_Encoding") -> float | None:
        """Write a tensor piece by piece; its relative error if that is measured."""
        begin, squared_error, squared = self._done_bytes, 0.0, 0.0
        with _naming(file, name, position):
            for start, end in encoding.paddings():
                self._partial.zeros(volume, position + start, position + end)
            for start, rows in encoding.pieces():
                if start:
                    self._report(Progress(self._done_bytes, self._total_bytes, name))
                for at, data in zip(encoding.places(start), rows.planes, strict=True):
                    view = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
                    with _naming(file, name, position + at):
                        self._partial.write(volume, position + at, view)
                    self._done_bytes += len(view)
                squared_error += rows.squared_error
                squared += rows.squared
        if (made := self._done_bytes - begin) != encoding.plane_bytes:
            raise RuntimeError(f"{name} came out {made} bytes long, not {encoding.plane_bytes}")
        self._done_bytes = begin
        if not encoding.source.measured:
            return None
        return float(f"{math.sqrt(squared_error / squared) if squared else 0.0:.2e}")

    def _close(self, plan: Directory) -> None:
        data = plan.to_json()
        if len(data) != self._directory_bytes:
            raise RuntimeError("the directory changed its length")
        with _naming(self._entry, "directory", 0):
            self._partial.write(0, HEADER_BYTES, memoryview(data))
            for volume, stream in enumerate(self._partial.streams):
                header = self._header(volume, digest(data))
                self._partial.write(volume, 0, memoryview(header.pack()))
                end = header.payload_offset + plan.payload_bytes[volume]
                self._partial.zeros(volume, self._ends[volume], end)  # where a volume has no object
                stream.truncate(end)
                os.fsync(stream.fileno())


@attrs.frozen
class _Encoding:
    """A source whose pieces are made by several threads, a bounded number ahead, and come in order."""

    source: TensorSource
    pool: ThreadPoolExecutor
    ahead: int

    @property
    def plane_bytes(self) -> int:
        """Stored bytes without the padding between planes."""
        return sum(plane.size_bytes for plane in self._planes())

    def places(self, start: int) -> tuple[int, ...]:
        """Where row `start` begins in each stored plane."""
        return places(self._planes(), self.source.rows, start)

    def paddings(self) -> Iterator[tuple[int, int]]:
        """See `layouts.paddings`."""
        return paddings(self._planes())

    def _planes(self) -> tuple[Plane, ...]:
        return self.source.layout.stored(self.source.format, self.source.shape)

    def pieces(self) -> Iterator[tuple[int, StoredRows]]:
        """(first row, the rows from there)."""
        opened, rows, step = self.source.open(), self.source.rows, self.source.piece_rows(PIECE_BYTES)
        waiting: deque[tuple[int, Future[StoredRows]]] = deque()
        try:
            for start in range(0, rows, step):
                waiting.append((start, self.pool.submit(opened.stored, start, min(start + step, rows))))
                if len(waiting) > self.ahead:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


@contextmanager
def _naming(file: Path, name: str | None, offset: int | None) -> Iterator[None]:
    """Turn what the file system, or the source of a tensor, says into an `ArtifactError` about this file and object."""
    try:
        yield
    except OSError as error:
        message = f"cannot write: {error.strerror or error}"
        raise ArtifactError(message, file=file, object=name, offset=offset) from error
    except ValueError as error:
        raise ArtifactError(str(error), file=file, object=name) from error
