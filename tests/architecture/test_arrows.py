"""Import arrows: what import-linter holds, and what it cannot express."""

import subprocess
import sys

import pytest

from tests.architecture.source import EVERYTHING, PRODUCT, ROOT, Source, sources

KNOWS_ARRAYS = {"engine", "kernels_pallas"}


def test_the_rooms_import_only_from_below() -> None:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("source", sources(*EVERYTHING), ids=lambda source: source.name)
def test_trio_is_the_only_event_loop(source: Source) -> None:
    loops = {"asyncio", "anyio", "uvloop", "curio"}
    assert not loops & {name.split(".")[0] for name in source.imports()}


def test_nothing_above_the_engine_knows_a_device_array() -> None:
    offenders = [
        source.name
        for source in sources(*PRODUCT)
        if source.room not in KNOWS_ARRAYS and {"jax", "jaxlib"} & {name.split(".")[0] for name in source.imports()}
    ]
    assert not offenders


def test_the_engines_face_needs_no_accelerator() -> None:
    program = "import sys, ninfer.engine.types, ninfer.engine.device; print({'jax', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "set()\n", done.stderr


def test_nobody_sleeps_in_a_thread() -> None:
    offenders = [source.name for source in sources(*PRODUCT, "tests") if "time.sleep" in set(source.imports())]
    offenders += [source.name for source in sources(*PRODUCT) if "time.sleep(" in source.text]
    assert not offenders
