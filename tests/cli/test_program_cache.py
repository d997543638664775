"""A folder of compiled programs that others may write is no crash of whichever command meets it: one line says so."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from ninfer.cli.bench import BenchOptions
from ninfer.cli.bench_run import run_bench
from ninfer.cli.failure import Failure
from ninfer.cli.selftest import SelftestOptions
from ninfer.cli.selftest_run import run_selftest


def selftested(artifact: Path, folder: Path, cache: Path) -> None:
    run_selftest(artifact, SelftestOptions(cache_dir=cache), Console(stderr=True))


def measured(artifact: Path, folder: Path, cache: Path) -> None:
    options = BenchOptions(config=str(folder), batch=(1,), context=(), prefill=(64,), prefill_chunk=64, cache_dir=cache)
    run_bench(options, "bench", Console(stderr=True))


@pytest.mark.parametrize("command", [selftested, measured])
def test_a_cache_that_others_may_write(
    command: Callable[[Path, Path, Path], None], golden_artifact: Path, golden_folder: Path, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    programs.chmod(0o777)
    with pytest.raises(Failure, match=r"written by others: `chmod go-w` it, or take another --cache-dir") as caught:
        command(golden_artifact, golden_folder, tmp_path)
    assert "\n" not in str(caught.value)
