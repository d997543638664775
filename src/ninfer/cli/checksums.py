"""Weights compared with their checksums while a device is prepared, on threads that would be idle.

A bit that flips on a disk makes a slightly different model, and no answer shows it. Large weights are not compared when
a server starts: on an H200's host the comparison of 4.8 GB took 22.9 s, longer than everything else that a start does,
and delayed the loading. The log says so. It knows no device.
"""

import itertools
import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

import attrs

from ninfer.cli.failure import Failure
from ninfer.engine.artifact import Artifact, ArtifactError
from ninfer.engine.programs.crew import Crew

log = logging.getLogger(__name__)

CORES_A_THREAD = 4
MOST_THREADS = 4

MOST_BYTES_AT_START = 256 << 20
"""Weights of more bytes are not compared by `serve`: up to here a core takes half a second."""


@attrs.frozen
class Comparison:
    """All tensors of an artifact, some of them compared by now."""

    begin_s: float
    found: list[Future[None]]

    def look(self) -> None:
        """Raise what is known already; waits for nothing.

        Raises:
            Failure: a tensor is not what was written.
        """
        for one in itertools.takewhile(Future.done, self.found):
            self._result(one)

    def wait(self) -> None:
        """Wait for all tensors.

        Raises:
            Failure: one is not what was written.
        """
        for one in self.found:  # in the order of giving: what comes after a failure may never begin
            self._result(one)
        if self.found:
            log.info("weights are as they were written, compared in %.1f s", time.monotonic() - self.begin_s)

    def _result(self, one: Future[None]) -> None:
        try:
            one.result()
        except ArtifactError as error:
            raise Failure(str(error)) from error


@contextmanager
def compared(artifact: Artifact, *, most_bytes: int | None = None) -> Iterator[Comparison]:
    """Begin to compare all tensors. Leaving the block ends what is not done yet.

    With `most_bytes` weights of more bytes are not compared, and the log says how to do it.
    """
    stored_bytes = sum(record.stored.size_bytes for record in artifact.tensors.values())
    if most_bytes is not None and stored_bytes > most_bytes:
        log.info(
            "weights are not compared with their checksums: %.1f GB would take long; "
            "`python -m ninfer inspect --verify %s` compares them",
            stored_bytes / 1e9,
            artifact.file,
        )
        yield Comparison(time.monotonic(), [])
        return
    left = False
    threads = max(1, min(MOST_THREADS, (os.cpu_count() or 1) // CORES_A_THREAD))
    with Crew(threads, name="ninfer-checksums") as crew:
        begin_s = time.monotonic()
        calls = [partial(artifact.check_tensor, name, go_on=lambda: not left) for name in artifact.tensors]
        try:
            yield Comparison(begin_s, [crew.give(call) for call in calls])
        finally:
            left = True
