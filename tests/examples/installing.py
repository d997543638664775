"""The examples, installed as distributions of their own."""

import importlib
import os
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


def run_own_tests(name: str, site: Path, folder: Path, file: str) -> None:
    """Run a file of the example's own tests in a process and an empty folder, where nothing of ours can be imported."""
    (folder / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-c", "pytest.ini", str(EXAMPLES / name / "tests" / file)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(EXAMPLES.parent / "src")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
