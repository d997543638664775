"""Map a regular file into memory, read-only. Knows nothing of what is in it."""

import mmap
import os
import stat
from pathlib import Path

from ninfer.engine.artifact.errors import ArtifactError


def map_file(file: Path) -> memoryview:
    """The whole file as a view; pages are read when touched, and the mapping goes when the last slice of it does.

    Raises:
        ArtifactError: there is no such file, or it is none that can be mapped.
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
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"cannot map: {_reason(error)}", file=file) from None
    finally:
        os.close(descriptor)


def read_file(file: Path) -> bytes:
    """All bytes of a file.

    Raises:
        ArtifactError: it cannot be read.
    """
    return bytes(map_file(file))


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
