"""`python -m ninfer convert`: options, progress and messages around `engine.artifact.convert`."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import attrs
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from ninfer.cli.failure import Failure
from ninfer.engine.artifact import ArtifactError, Progress
from ninfer.engine.artifact import convert as convert_folder
from ninfer.engine.artifact.conversion import FormatChoice
from ninfer.engine.artifact.writer import DEFAULT_VOLUME_LIMIT_BYTES

TERMINATED_STATUS = 128 + signal.SIGTERM


@attrs.frozen(kw_only=True)
class ConvertOptions:
    """What a conversion can be asked for."""

    name: Annotated[str | None, Parameter(help="Public model name; without it the folder's name.")] = None
    format: Annotated[
        FormatChoice,
        Parameter(
            help="Numeric format of the weights. source keeps all values; bf16 and int8_row leave vectors in fp32."
        ),
    ] = "source"
    volume_limit_mib: Annotated[
        int, Parameter(help="Largest size of one file, in MiB.", validator=Number(gte=1, lte=1 << 40))
    ] = DEFAULT_VOLUME_LIMIT_BYTES >> 20


def convert(
    folder: Annotated[Path, Parameter(help="Hugging Face folder with config.json and .safetensors files.")],
    out: Annotated[Path, Parameter(help="The artifact to write, usually NAME.ninfer. Must not exist.")],
    /,
    *,
    options: Annotated[ConvertOptions, Parameter(name="*")] = ConvertOptions(),
) -> None:
    """Turn a Hugging Face folder into an artifact."""
    errors = Console(stderr=True)
    try:
        with terminated_cleanly(), progress_bar(errors) as report:
            conversion = convert_folder(
                folder,
                out,
                name=options.name,
                form=options.format,
                volume_limit_bytes=options.volume_limit_mib << 20,
                report=report,
            )
    except ArtifactError as error:
        raise Failure(str(error)) from error
    for note in conversion.notes:
        errors.print(note, markup=False, highlight=False, soft_wrap=True)
    print(out)


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
