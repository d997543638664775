"""The command line of artifacts: output, exit status, one line for whatever is wrong, and what is not imported."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ninfer.cli import main
from ninfer.cli.convert import ConvertOptions
from ninfer.cli.convert import run as run_conversion
from ninfer.cli.converting import terminated_cleanly
from ninfer.cli.failure import TERMINATED_STATUS
from ninfer.engine.artifact import Progress
from ninfer.engine.artifact.safetensors import SafetensorsFile


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command."""
    status = 0
    try:
        main(arguments)
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else 1
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.contract("D18")
def test_convert_then_inspect(golden_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = tmp_path / "m.ninfer"
    status, out, err = run(
        capsys,
        "convert",
        str(golden_folder),
        str(entry),
        "--name",
        "Demo",
        "--recipe",
        "bf16",
        "--volume-limit-mib",
        "1",
    )
    assert (status, out) == (0, f"{entry}\n")
    assert [line.split(": ")[0] for line in err.splitlines()] == [
        "layers.*.mlp.down_proj.weight",
        "mtp.layers.*.mlp.down_proj.weight",
    ], "their 96 columns fit no tiles"
    status, out, err = run(capsys, "inspect", str(entry), "--json", "--verify")
    assert (status, err) == (0, "")
    shown = json.loads(out)
    assert (shown["name"], shown["architecture"], shown["container_version"]) == ("Demo", "qwen3_5", 1)
    assert shown["facts"] == {"parameters": 336_260, "weight_bytes": 680_976, "dominant_format": "bf16"}
    assert shown["verified_objects"] == len(shown["tensors"]) + len(shown["resources"]) == 75
    assert shown["components"]["text"]["config"]["hidden_size"] == 64
    embedding = next(tensor for tensor in shown["tensors"] if tensor["name"] == "embed_tokens.weight")
    assert (embedding["shape"], embedding["format"], embedding["layout"]) == ([320, 64], "bf16", "contiguous")
    stored = entry.read_bytes()[embedding["file_offset"] :][: embedding["bytes"]]
    assert len(stored) == 320 * 64 * 2


def test_inspect_for_people(golden_artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "inspect", str(golden_artifact), "--verify")
    assert status == 0
    for expected in ("golden", "336,260 parameters", "tokenizer.json", "layers.3.self_attn.q_proj.weight", "256 x 64"):
        assert expected in out
    assert "75 objects, all as written" in out


@pytest.mark.contract("D18")
def test_what_a_recipe_costs_is_told(golden_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = tmp_path / "m.ninfer"
    status, _, err = run(capsys, "convert", str(golden_folder), str(entry), "--recipe", "nvfp4")
    assert status == 0
    table = [line.split() for line in err.splitlines() if line.startswith(" layers.*.mlp")]
    assert [(row[0], row[1]) for row in table] == [
        ("layers.*.mlp.gate_proj.weight", "4"),
        ("layers.*.mlp.up_proj.weight", "4"),
    ], "down_proj is bf16, as it was"
    assert all(0.07 < float(row[2]) <= float(row[3]) < 0.10 for row in table)
    status, out, _ = run(capsys, "inspect", str(entry))
    shares = [line.split() for line in out.splitlines() if line.startswith(" nvfp4")]
    assert [row[:3] for row in shares] == [["nvfp4", "fragment", "29"]]
    status, out, _ = run(capsys, "inspect", str(entry), "--json")
    shown = json.loads(out)
    head = next(tensor for tensor in shown["tensors"] if tensor["name"] == "lm_head.weight")
    assert head["bits_per_weight"] == pytest.approx(4 + 8 / 16 + 32 / 64)
    assert 0.07 < head["relative_error"] < 0.10
    assert shown["provenance"]["recipe"] == {
        "name": "nvfp4",
        "rules": [{"tensors": ["*"], "format": "nvfp4", "encoder": "search"}],
    }
    share = next(share for share in shown["formats"] if share["format"] == "nvfp4")
    assert share["worst_relative_error"] == max(t["relative_error"] for t in shown["tensors"] if t["format"] == "nvfp4")


@pytest.mark.contract("D18")
@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(TERMINATED_STATUS)], ids=["Ctrl-C", "SIGTERM"])
def test_a_conversion_that_was_stopped_goes_on(
    golden_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], stop: BaseException
) -> None:
    def report(progress: Progress) -> None:
        if progress.done_bytes > 100_000:
            raise stop

    said = io.StringIO()
    options = ConvertOptions(recipe="q4")
    with pytest.raises(type(stop)):
        run_conversion(golden_folder, tmp_path / "m.ninfer", options, Console(file=said), report)
    assert said.getvalue().startswith("stopped; the same command goes on from ")
    assert said.getvalue().endswith(f"bytes in {tmp_path}/.m.ninfer.partial\n")
    status, _, err = run(capsys, "convert", str(golden_folder), str(tmp_path / "m.ninfer"), "--recipe", "q4")
    assert status == 0
    assert "bytes were there from an earlier attempt" in err
    assert [file.name for file in tmp_path.iterdir()] == ["m.ninfer"]


def test_a_weight_that_is_no_number_is_named(
    golden_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the last tensors: what was finished before stays, and the line says so."""
    folder = Path(shutil.copytree(golden_folder, tmp_path / "hf"))
    file = SafetensorsFile(folder / "model.safetensors")
    content = bytearray(file.file.read_bytes())
    start = file.entries["mtp.fc.weight"].start
    content[start : start + 4] = np.float32(np.nan).tobytes()
    file.file.write_bytes(content)
    status, out, err = run(capsys, "convert", str(folder), str(tmp_path / "m.ninfer"), "--recipe", "q4")
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert "tensor mtp.fc.weight: holds a number that is not finite; the same command goes on" in line
    assert line.endswith(f"bytes in {tmp_path}/.m.ninfer.partial")


@pytest.mark.contract("D18")
def test_convert_takes_the_id_of_a_downloaded_model(
    golden_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--owner--small"
    shutil.copytree(golden_folder, repository / "snapshots" / "abc123")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123")
    assert run(capsys, "convert", "owner/small", str(tmp_path / "m.ninfer"))[0] == 0
    assert json.loads(run(capsys, "inspect", "--json", str(tmp_path / "m.ninfer"))[1])["name"] == "small"
    status, _, err = run(capsys, "convert", "owner/large", str(tmp_path / "n.ninfer"))
    assert (status, err.count("\n")) == (2, 1)
    assert f"no such model in {tmp_path / 'hub'}: `hf download owner/large` puts it there" in err


def test_convert_says_what_it_left_out(golden_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((golden_folder / name).read_bytes())
    status, _, err = run(capsys, "convert", str(tmp_path), str(tmp_path / "m.ninfer"))
    assert status == 0
    assert err.splitlines() == [
        f"no {name} in {tmp_path}: the artifact can be inspected, but not served"
        for name in ("tokenizer.json", "chat_template.jinja")
    ]


@pytest.mark.contract("OPT-077")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["inspect"], "FILE"),
        (["inspect", "{tmp}/none"], "{tmp}/none: cannot open: No such file or directory"),
        (["inspect", "{tmp}", "--josn"], "--josn"),
        (["convert", "{tmp}"], "OUT"),
        (["convert", "{tmp}", "{tmp}/m.ninfer"], "{tmp}/config.json: is missing: this is not the folder of a Hugging"),
        (["convert", "{tmp}/none", "{tmp}/m.ninfer"], "{tmp}/none: no such folder"),
        (["convert", "{tmp}", "{tmp}/m", "--volume-limit-mib", "0"], "--volume-limit-mib"),
        (["convert", "{tmp}", "{tmp}/m", "--volume-limit-mib", "many"], "--volume-limit-mib"),
        (["convert", "{tmp}", "{tmp}/m", "--recipe", "q3"], "q3: no such recipe; there are source, fp32,"),
        (["explode"], "there is no command 'explode'"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    filled = [argument.format(tmp=tmp_path) for argument in arguments]
    status, out, err = run(capsys, *filled)
    assert status == 2
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("ninfer: ")
    assert says.format(tmp=tmp_path) in line
    assert not list(tmp_path.iterdir())


@pytest.mark.contract("D18")
def test_verify_finds_a_changed_weight(
    golden_artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray(golden_artifact.read_bytes())
    content[-1] ^= 1
    file = tmp_path / "m.ninfer"
    file.write_bytes(content)
    assert run(capsys, "inspect", str(file))[0] == 0, "the weights are not read"
    status, out, err = run(capsys, "inspect", str(file), "--verify")
    assert (status, out) == (2, "")
    assert err == f"ninfer: {file}: tensor mtp.norm.weight: offset 1374976: checksum mismatch\n"


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"], ["inspect", "{artifact}"]])
def test_no_accelerator_library_is_imported(golden_artifact: Path, arguments: list[str]) -> None:
    filled = [argument.format(artifact=golden_artifact) for argument in arguments]
    script = "import sys\nfrom ninfer.cli import main\nmain(sys.argv[1:])\nassert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", script, *filled], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_reader_that_leaves_is_no_crash(golden_artifact: Path) -> None:
    command = [sys.executable, "-m", "ninfer", "inspect", str(golden_artifact)]
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (1, "")


def test_sigterm_unwinds_a_conversion() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught, terminated_cleanly():
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == TERMINATED_STATUS
    assert signal.getsignal(signal.SIGTERM) is before
