"""The compile cache is machine code that gets loaded: nobody else may write it."""

import logging
from pathlib import Path

import jax
import pytest

from ninfer.engine.programs.compile_cache import use_compile_cache


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PermissionError, match="can be written by others"):
        use_compile_cache(folder)


def test_where_nothing_can_be_written_there_is_no_cache(caplog: pytest.LogCaptureFixture) -> None:
    """No folder can be made in /sys, by anybody."""
    before = jax.config.jax_compilation_cache_dir
    with caplog.at_level(logging.WARNING):
        use_compile_cache(Path("/sys/ninfer-programs"))
    (record,) = caplog.records
    assert record.getMessage().startswith("every start compiles its programs anew, --cache-dir changes that: ")
    assert "/sys/ninfer-programs" in record.getMessage()
    assert jax.config.jax_compilation_cache_dir == before


def test_a_file_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        use_compile_cache(tmp_path / "file" / "programs")
