"""The compile cache is machine code that gets loaded: nobody else may write it."""

from pathlib import Path

import pytest

from ninfer.engine.programs.compile_cache import use_compile_cache


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PermissionError, match="can be written by others"):
        use_compile_cache(folder)
