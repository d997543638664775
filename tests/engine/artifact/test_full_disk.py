"""A file system that takes no more: a process whose files may not grow past a size, at every stage of a conversion."""

import subprocess
import sys
from pathlib import Path

import pytest

LIMITED = """
import resource, sys
from pathlib import Path
from ninfer.engine.artifact import ArtifactError, convert
for limit_bytes in map(int, sys.argv[3:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except ArtifactError as error:
        print(error)
"""


@pytest.mark.contract("D18")
def test_a_full_disk_is_one_line_and_leaves_nothing(golden_folder: Path, tmp_path: Path) -> None:
    """Limits inside the header, the directory, the first tensor and one of the last."""
    limits = ["10", "9000", "40000", "1375000"]
    entry = tmp_path / "m.ninfer"
    command = [sys.executable, "-c", LIMITED, str(golden_folder), str(entry), *limits]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    lines = done.stdout.splitlines()
    assert len(lines) == len(limits), done.stderr
    assert all(line.startswith(f"{entry}: ") and line.endswith(": cannot write: File too large") for line in lines)
    assert "resource tokenizer.json: offset " in lines[0]
    assert "tensor embed_tokens.weight: offset " in lines[2]
    assert "tensor mtp.layers.0." in lines[3]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(golden_folder: Path, tmp_path: Path) -> None:
    entry = tmp_path / "missing" / "m.ninfer"
    command = [sys.executable, "-c", LIMITED, str(golden_folder), str(entry), "100000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{entry}: cannot write: No such file or directory\n"
