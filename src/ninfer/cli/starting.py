"""The wait until a server is ready: a line that moves on a terminal, and how long it took last time.

The line shows the latest record, so code that works at the start tells its steps in the log alone. On a terminal it is
transient (LOG-007); elsewhere there is none (LOG-008). Knows nothing of what is started.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class _Latest(logging.Handler):
    """Shows each record on the line."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        super().__init__()
        self._bar = bar
        self._task = task

    def emit(self, record: logging.LogRecord) -> None:
        self._bar.update(self._task, description=record.getMessage())


@contextmanager
def moving_line(console: Console, text: str) -> Iterator[None]:
    """Show `text`, then the latest record, and the seconds, as long as the block lasts."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        handler = _Latest(bar, bar.add_task(text, total=None))
        logger = logging.getLogger("ninfer")
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


@attrs.frozen
class StartTimes:
    """Seconds of the latest start of each model on this machine. A folder that cannot be written remembers nothing."""

    folder: Path

    def last_s(self, model: str) -> float | None:
        """Of the latest start, or None."""
        seconds = self._read().get(model)
        return float(seconds) if isinstance(seconds, int | float) else None

    def note(self, model: str, seconds: float) -> None:
        """Remember the start that has just been."""
        known = {**self._read(), model: round(seconds, 1)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(known), encoding="utf-8")
        except OSError:
            return

    @property
    def _file(self) -> Path:
        return self.folder / "start-seconds.json"

    def _read(self) -> Mapping[str, object]:
        try:
            found = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
