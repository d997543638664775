"""Attack 12: a bit that fell over in the weights ends the start, and is not served without a word."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ninfer.cli.checksums import compared
from ninfer.cli.failure import Failure
from ninfer.engine.artifact import Artifact


def with_a_bit_over(artifact: Path, folder: Path, name: str) -> Path:
    """A copy of an artifact with the lowest bit of a tensor's middle byte turned over."""
    with Artifact.open(artifact) as opened:
        record = opened.tensors[name]
        at = opened.file_offset(record.stored) + record.stored.size_bytes // 2
    content = bytearray(artifact.read_bytes())
    content[at] ^= 1
    file = folder / "m.ninfer"
    file.write_bytes(content)
    return file


def test_sound_weights_are_told(golden_artifact: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ninfer")
    with Artifact.open(golden_artifact) as artifact, compared(artifact) as comparison:
        comparison.wait()
    (record,) = caplog.records
    assert record.getMessage().startswith("weights are as they were written, compared in ")


def test_large_weights_are_not_compared_and_the_log_says_so(
    golden_artifact: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ninfer")
    file = with_a_bit_over(golden_artifact, tmp_path, "mtp.norm.weight")
    with Artifact.open(file) as artifact, compared(artifact, most_bytes=1 << 20) as comparison:
        comparison.wait()
    (record,) = caplog.records
    assert record.getMessage() == (
        "weights are not compared with their checksums: 0.0 GB would take long; "
        f"`python -m ninfer inspect --verify {file}` compares them"
    )


@pytest.mark.parametrize("name", ["embed_tokens.weight", "layers.2.mlp.up_proj.weight", "mtp.norm.weight"])
def test_any_tensor_is_compared(golden_artifact: Path, tmp_path: Path, name: str) -> None:
    file = with_a_bit_over(golden_artifact, tmp_path, name)
    with Artifact.open(file) as artifact, compared(artifact) as comparison, pytest.raises(Failure) as refused:
        comparison.wait()
    assert str(refused.value).startswith(f"{file}: tensor {name}: offset ")
    assert str(refused.value).endswith(": checksum mismatch")


def test_who_leaves_early_waits_for_nothing(golden_artifact: Path) -> None:
    read: list[str] = []

    class Slow(Artifact):
        """An artifact whose tensors are noted, and end when they are told to."""

        def check_tensor(self, name: str, go_on: object = None) -> None:
            read.append(name)
            while callable(go_on) and go_on():
                pass

    with Slow.open(golden_artifact) as artifact, compared(artifact):
        pass
    assert len(read) <= 4


def test_a_server_does_not_become_ready_on_damaged_weights(golden_chat_artifact: Path, tmp_path: Path) -> None:
    file = with_a_bit_over(golden_chat_artifact, tmp_path, "layers.0.mlp.up_proj.weight")
    options = ["--port", "0", "--cache-dir", str(tmp_path / "cache"), "--max-context", "64", "--log-level", "error"]
    ended = subprocess.run(
        [sys.executable, "-m", "ninfer", "serve", str(file), *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"ninfer: {file}: tensor layers.0.mlp.up_proj.weight: offset ")
    assert line.endswith(": checksum mismatch")
