"""Map a regular file into memory, read-only, or read a small one of any kind. Knows nothing of what is in it."""

import mmap
import os
import stat
from pathlib import Path

from ninfer.engine.artifact.errors import ArtifactError

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""How the small file begins that stands where Git LFS has not put the large one."""

MOST_SMALL_BYTES = 4 << 20
"""Of a template, a recipe or a file of figures: /dev/zero has more."""


def map_file(file: Path) -> memoryview:
    """The whole file as a view; pages are read when touched, and the mapping goes when the last slice of it does.

    Raises:
        ArtifactError: there is no such file, it is none that can be mapped, or a Git LFS pointer stands in its place.
    """
    try:
        # Without O_NONBLOCK the open of a FIFO waits for a writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise ArtifactError(f"cannot open: {_reason(error)}", file=file) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ArtifactError("not a regular file", file=file)
        if status.st_size == 0:
            return memoryview(b"")
        view = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"cannot map: {_reason(error)}", file=file) from None
    finally:
        os.close(descriptor)
    if view[: len(LFS_POINTER)] == LFS_POINTER:
        message = "is a Git LFS pointer, not the file itself: run `git lfs pull` there, or `hf download` the model"
        raise ArtifactError(message, file=file)
    return view


def read_file(file: Path) -> bytes:
    """All bytes of a file.

    Raises:
        ArtifactError: it cannot be read.
    """
    return bytes(map_file(file))


def read_small(file: Path, most_bytes: int = MOST_SMALL_BYTES) -> bytes:
    """All bytes of a file that somebody wrote by hand, or of a pipe; never more than `most_bytes`.

    Raises:
        ArtifactError: it cannot be read, or has more.
    """
    try:
        # Without O_NONBLOCK the open of a FIFO waits for a writer, and a read of one that has none ends at once.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            os.set_blocking(descriptor, True)
            data = stream.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"cannot read: {_reason(error)}", file=file) from None
    if len(data) > most_bytes:
        raise ArtifactError(f"has more than the {most_bytes:,} bytes that such a file may have", file=file)
    return data


def exists(path: Path) -> bool:
    """Whether there is anything at `path`.

    Raises:
        ArtifactError: nothing could be there: a name that is too long, say.
    """
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise ArtifactError(f"cannot open: {_reason(error)}", file=path) from None


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
