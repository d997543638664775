"""What a long command is doing: a line with a clock that moves on a terminal, a line for each step elsewhere.

On stderr, so that what is printed to stdout stays what was asked for. It knows no command.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def telling(console: Console) -> Iterator[Callable[[str], None]]:
    """Yields a function; call it with each next step in a few words."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def tell(step: str) -> None:
            if console.is_terminal:
                bar.update(task, description=step)
            else:
                console.print(step, markup=False, highlight=False, soft_wrap=True)

        yield tell
