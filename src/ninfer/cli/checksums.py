"""Weights compared with their checksums while a device is prepared, on threads that would be idle.

A bit that flips on a disk makes a slightly different model, and no answer shows it. The weights are read from the disk
only once: loading and comparing find the pages that the other has read. It knows no device.
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
"""BLAKE2b takes a core about a second for a gigabyte; four compare weights sooner than any device here loads them."""


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
        log.info("weights are as they were written, compared in %.1f s", time.monotonic() - self.begin_s)

    def _result(self, one: Future[None]) -> None:
        try:
            one.result()
        except ArtifactError as error:
            raise Failure(str(error)) from error


@contextmanager
def compared(artifact: Artifact) -> Iterator[Comparison]:
    """Begin to compare all tensors. Leaving the block ends what is not done yet."""
    left = False
    threads = max(1, min(MOST_THREADS, (os.cpu_count() or 1) // CORES_A_THREAD))
    with Crew(threads, name="ninfer-checksums") as crew:
        begin_s = time.monotonic()
        calls = [partial(artifact.check_tensor, name, go_on=lambda: not left) for name in artifact.tensors]
        try:
            yield Comparison(begin_s, [crew.give(call) for call in calls])
        finally:
            left = True
