"""The examples, installed as distributions of their own."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def install(name: str, target: Path) -> None:
    """Put the example `name` into a folder, as `pip install` puts it into an environment."""
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
         "--target", str(target), str(EXAMPLES / name)],
        check=True,
    )  # fmt: skip


@contextmanager
def on_the_path(name: str, target: Path) -> Iterator[list[EntryPoint]]:
    """The entry points of what `target` holds, which can be imported as long as the block lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(target))
        importlib.invalidate_caches()
        yield [entry for dist in distributions(path=[str(target)]) for entry in dist.entry_points]
        sys.modules.pop(name, None)
