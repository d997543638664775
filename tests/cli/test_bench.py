"""`python -m ninfer bench`: what it refuses, what it shows of a report, and a run on the golden model's shape."""

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from ninfer.cli import main
from ninfer.cli.bench import BenchOptions, measured_command
from ninfer.cli.bench_file import read_report, report_values, write_report
from ninfer.cli.bench_run import model_shape, wish_of
from ninfer.cli.bench_tables import report_lines
from tests.engine.bench.samples import report
from tests.engine.model.golden import FOLDER


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Status, output and errors of `bench` in this process."""
    status = 0
    try:
        main(["bench", *map(str, arguments)])
    except SystemExit as ended:
        status = int(ended.code or 0)
    out, errors = capsys.readouterr()
    return status, out, errors


@pytest.mark.contract("D40")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--recipe", "q3"), "--recipe q3: there are fp32, bf16"),
        (("--kv-dtype", "int4", "--recipe", "q4"), "--kv-dtype int4: there are bf16, int8, fp8"),
        (("--kv-dtype", "int8", "--recipe", "fp32"), "--kv-dtype: recipe fp32 keeps"),
        (("--batch", "9"), "--batch 9: 1 to 8 rows"),
        (("--batch", "1,x"), "--batch"),
        (("--context", "100"), "--context 100: 64 steps need a context of at least 128"),
        (("--context", "600000", "--prefill", "8192"), "600000 tokens: the native context of 27b is 262144"),
        (("--prefill-chunk", "100"), "--prefill-chunk 100: a multiple of 64"),
        (("--config", "no-such-model"), "--config no-such-model: no such file; shapes with a name: 27b, demo"),
        (("--json", "/no/such/folder/x.json"), "--json /no/such/folder/x.json: there is no folder"),
        (("--chart", "x.gif"), "--chart x.gif: a file of kind .svg or .png"),
        (("--show", "no-such.json"), "--show no-such.json: cannot read: No such file"),
        (("--show", "x.json", "--recipe", "q4"), "--recipe: --show x.json measures nothing"),
        (("--no-such-option",), "--no-such-option"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    status, out, errors = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert said in errors
    assert len(errors.splitlines()) == 1


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    write_report(file, report())
    assert read_report(file) == report()
    assert json.loads(file.read_text())["derived"]["decode"][0]["tokens_per_s"] == 500.0


@pytest.mark.parametrize(
    ("arguments", "quoted"),
    [
        (["bench", "--recipe", "q4"], "python -m ninfer bench --recipe q4"),
        (["bench", "--json", "/a/b.json", "--prefill", "", "--chart=/a/c.svg"], "python -m ninfer bench --prefill ''"),
        (["bench", "--cache-dir"], "python -m ninfer bench"),
    ],
)
def test_a_report_quotes_its_command_without_folders(arguments: list[str], quoted: str) -> None:
    assert measured_command(arguments) == quoted


@pytest.mark.parametrize("text", ["", "[]", '{"date": 1}', "{"])
def test_another_file_is_no_report(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    status, _, errors = run(capsys, "--show", file)
    assert status == 2
    assert "not a report of bench" in errors


def test_an_earlier_report_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    write_report(file, report())
    status, out, errors = run(capsys, "--show", file)
    assert (status, errors) == (0, "")
    assert out.splitlines() == report_lines(report())


def test_tables_tell_times_bytes_shares_and_doubts() -> None:
    text = "\n".join(report_lines(report()))
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert ["q4, KV int8", "1", "100", "2.000 (1.000 to 3.000)", "500.0", "0.000", "0.00", "75.5%"] in cells
    assert ["q4, KV int8", "100", "1 to 8", "2.00"] in cells
    assert ["q4, KV int8", "1", "100 to 500", "1.000", "1.600", "0.62"] in cells
    assert ["`gate_up`", "600"] in cells
    assert ["26 others", "52", "10.00", "520.0", "52.0%"] in cells or [
        "26 others",
        "52",
        "5.00",
        "260.0",
        "52.0%",
    ] in cells
    assert "8 rows at 100 tokens: 2 rounds had logits that were not finite." in text


def test_nothing_that_was_not_measured_has_a_table() -> None:
    empty = attrs.evolve(report(), subjects=())
    assert not [line for line in report_lines(empty) if line.startswith("| decode")]
    assert report_values(empty)["subjects"] == []


def test_a_chart_names_what_it_shows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, chart = tmp_path / "found.json", tmp_path / "found.svg"
    write_report(file, report())
    assert run(capsys, "--show", file, "--chart", chart)[0] == 0
    assert "q4, KV int8, 8 rows" in chart.read_text()
    status, _, errors = run(capsys, "--show", file, "--chart", tmp_path / "no-such-folder" / "x.png")
    assert (status, "No such file" in errors) == (2, True)


@pytest.mark.parametrize(("native", "context", "prompt"), [(262_144, 1024, 8192), (4096, 1024, 4096), (512, 512, 512)])
def test_lengths_that_nobody_gave_fit_the_model(native: int, context: int, prompt: int) -> None:
    """The demonstration model has a context of 4,096, and could not be measured as `bench --config demo`."""
    wish = wish_of(BenchOptions(config="demo"), native)
    assert (wish.contexts, wish.prompts) == ((context,), (prompt,))
    assert wish_of(BenchOptions(context=(), prefill=()), native).prompts == ()
    assert model_shape("demo").max_position_embeddings == 4096


def test_a_run_on_a_small_shape(tmp_path: Path) -> None:
    """In a process of its own: JAX keeps the first compile cache that it was given."""
    file, shape = tmp_path / "found.json", tmp_path / "config.json"
    members = json.loads((FOLDER / "config.json").read_text())
    shallow = {"num_hidden_layers": 2, "layer_types": members["layer_types"][-2:]}  # one of each kind
    shape.write_text(json.dumps(members | shallow))
    options = [
        *("--config", shape, "--batch", "2", "--context", "128", "--prefill", "100", "--prefill-chunk", "64"),
        *("--steps", "4", "--runs", "1", "--kernels", "--json", file, "--cache-dir", tmp_path / "cache"),
    ]
    command = [sys.executable, "-m", "ninfer", "bench", *map(str, options)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    found = read_report(file)
    assert found.config == str(shape)
    (measured,) = found.subjects
    assert (measured.name, [facts.name for facts in measured.programs]) == ("fp32, KV fp32", ["prefill 64", "decode 2"])
    assert measured.decode[0].step_s.median > 0
    assert not measured.decode[0].faulty_rounds
    assert (measured.prefill[0].tokens, measured.prefill[0].chunk_tokens) == (100, 64)
    assert [table.of for table in measured.kernels] == ["decode, 2 rows at 128 tokens", "prefill of 100 tokens"]
    assert all(table.rows for table in measured.kernels)
    assert ended.stdout.splitlines() == report_lines(found)
