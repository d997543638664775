"""What a command has around a conversion, its own or the one that opening a Hugging Face folder may need.

A bar on a terminal, and a SIGTERM that lets temporary files be removed. It knows no options and no files.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from ninfer.cli.failure import TERMINATED_STATUS
from ninfer.engine.artifact import Progress


@contextmanager
def progress_bar(console: Console) -> Iterator["_Reporter"]:
    """A bar on a terminal, nothing elsewhere; yields the `report` of a conversion."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield _Reporter(bar)


class _Reporter:
    """Moves the bar. The task begins with the first report, which brings the total."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task = bar.add_task("reading", total=None)

    def __call__(self, progress: Progress) -> None:
        self._bar.update(
            self._task, description=progress.object, completed=progress.done_bytes, total=progress.total_bytes
        )


@contextmanager
def terminated_cleanly() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that temporary files are removed."""

    def stop(number: int, frame: FrameType | None) -> None:
        sys.exit(TERMINATED_STATUS)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
