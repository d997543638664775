"""`python -m ninfer selftest` as a process: tables, JSON, exit statuses."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.model.golden import FOLDER


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ninfer", "selftest", *map(str, arguments)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, env=environment)


@pytest.mark.slow
def test_a_sound_model_and_one_that_is_not_what_it_should_be(golden_chat_artifact: Path, tmp_path: Path) -> None:
    artifact = tmp_path / "golden.ninfer"
    shutil.copyfile(golden_chat_artifact, artifact)
    beside = tmp_path / "golden.golden"
    beside.mkdir()
    for name in ("inputs.json", "expected.safetensors"):
        shutil.copyfile(FOLDER / name, beside / name)
    options = ("--cache-dir", tmp_path / "cache", "--max-concurrency", 2, "--max-context", 512, "--prefill-chunk", 256)

    sound = run(artifact, *options, "--json")
    assert sound.returncode == 0, sound.stderr
    told = sound.stderr.splitlines()
    assert told[0] == "loading weights and comparing them with their checksums"
    assert {"decode against prefill: prompt 2 of 2", "determinism: batch 2 of 2"} <= set(told)
    assert "preparing the device: ready (4 of 4)" in told
    report = json.loads(sound.stdout)
    assert report["passed"] is True
    assert [check["outcome"] for check in report["checks"]] == ["passed"] * 4
    assert report["checks"][0]["figures"]["kl_estimate"] <= 1e-8
    assert [program["name"] for program in report["programs"]] == ["prefill 256", "decode 1", "decode 2"]
    assert {part["name"] for part in report["memory"]["parts"]} >= {"weights", "KV pool", "program workspace"}

    inputs = json.loads((beside / "inputs.json").read_text())
    inputs["prompts"][0]["greedy"][3] += 1
    (beside / "inputs.json").write_text(json.dumps(inputs))
    wrong = run(artifact, *options)
    assert wrong.returncode == 1
    lines = {" ".join(line.split()[:3]): line for line in wrong.stdout.splitlines()}
    assert "1 of 32 greedy tokens differ" in lines["golden vectors failed"]
    assert "determinism passed 0" in lines
    assert "workspace" in wrong.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no-such.ninfer",), "no-such.ninfer: cannot open"),
        (("x.ninfer", "--max-context", 63), "--max-context"),
        (("x.ninfer", "--max-concurrency", 9), "--max-concurrency"),
        (("x.ninfer", "--kv-dtype", "vq2"), "--kv-dtype"),
    ],
)
def test_nothing_to_test_is_one_line(arguments: tuple[object, ...], said: str) -> None:
    ended = run(*arguments)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert said in line
    assert ended.stdout == ""


def test_golden_vectors_that_are_not_there(golden_chat_artifact: Path, tmp_path: Path) -> None:
    ended = run(golden_chat_artifact, "--golden", tmp_path / "none", "--cache-dir", tmp_path)
    assert ended.returncode == 2
    assert "golden vectors: " in ended.stderr
    assert "none" in ended.stderr
