"""Odd values of every option of every command: one line and status 2, and never a traceback.

What is asked for cannot be done in any of these commands: the artifact, the folder, the server or the shape is not
there. So a value that passes for its option ends them no better.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from ninfer.cli import build_app, main
from ninfer.cli.assembly import open_house
from ninfer.cli.failure import Failure
from ninfer.engine.artifact.errors import one_line

NOWHERE = {
    "serve": ["no-such.ninfer"],
    "chat": ["--url=http://127.0.0.1:9"],
    "convert": ["no-such-folder", "/no/such/place.ninfer"],
    "selftest": ["no-such.ninfer"],
    "bench": ["--config=no-such-model", "--recipe=fp32"],
}
ODD_NUMBERS = (str(10**30), "1e999", "\N{SUPERSCRIPT TWO}")
ODD_TEXTS = ("\udcff", "a\nb", "/dev/zero", "x" * 300)
"""Bytes that are no UTF-8, two lines, a file that has no end, a name that is too long."""
ODD = (
    *ODD_NUMBERS,
    *ODD_TEXTS,
    *("", " ", "0", "-1", "1.5", "nan", "9" * 5000, "\N{ARABIC-INDIC DIGIT THREE}", "auto"),
    *("a..b", "{}", "\N{SLIGHTLY SMILING FACE}", "/", "/dev/null", "/dev/full"),
)


def odd_values(kind: object) -> tuple[str, ...]:
    """What is odd for an option of this type."""
    numbers = bool({int, float} & {kind, *get_args(kind)})
    return ODD_NUMBERS if numbers else ODD_TEXTS


def cases() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every option of every command that takes a value: command, long name, odd values."""
    app = build_app()
    for command in NOWHERE:
        for argument in app[command].assemble_argument_collection():
            if argument.name.startswith("--") and argument.hint is not bool:
                yield command, argument.name, odd_values(argument.hint)


CASES = list(cases())


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
    """Assert that a command ends with status 2 and one line that begins with our name."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (2, ""), arguments
    (line,) = captured.err.splitlines()
    assert line.startswith("ninfer: ")
    assert len(line) < 6000


def others(command: str, option: str) -> list[str]:
    """The command's other arguments."""
    return [word for word in NOWHERE[command] if not word.startswith(f"{option}=")]


@pytest.mark.contract("OPT-077")
@pytest.mark.parametrize(("command", "option", "values"), CASES, ids=[" ".join(case[:2]) for case in CASES])
def test_an_odd_value_is_one_line(
    command: str, option: str, values: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for value in values:
        refused(capsys, command, *others(command, option), f"{option}={value}")


@pytest.mark.slow
@pytest.mark.parametrize(("command", "option"), [case[:2] for case in CASES])
def test_any_odd_value_is_one_line(
    command: str, option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NINFER_API_KEY", "k")  # --host 0 is every address, which warns where there is no key
    for value in ODD:
        refused(capsys, command, *others(command, option), f"{option}={value}")


@pytest.mark.contract("OPT-077")
@pytest.mark.parametrize("command", ["serve", "inspect", "selftest", "convert"])
def test_an_odd_artifact_is_one_line(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    out = ["m.ninfer"] if command == "convert" else []
    for value in (*ODD_TEXTS, "", "/", "/dev/null", "owner/" + "x" * 300):
        refused(capsys, command, value, *out)
    assert not list(tmp_path.iterdir())


def test_an_odd_place_for_an_artifact_is_one_line(
    golden_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in ("", "/", "/dev/zero", "x" * 300, "x" * 250, "no/such/folder/m.ninfer"):
        refused(capsys, "convert", str(golden_folder), value)
    assert not list(tmp_path.iterdir())


EXTREMES = [
    *(f"--chat-template={file}" for file in ("/", "/dev/null", "/dev/zero", "/dev/full", "\udcff", "")),
    *(f"--context-cost-presets={file}" for file in ("/", "/dev/null", "/dev/zero", "/dev/full", "\udcff", "")),
    *(f"--max-context={tokens}" for tokens in (1, 4096, 4097, 2**63 - 1)),
    *(f"--kv-capacity={tokens}" for tokens in (0, 64, 2**28, 10**12, 2**63 - 1)),
    *(f"--prefill-chunk={tokens}" for tokens in (1, 2**20)),
    "--vram-headroom-mib=1099511627776",
    "--max-pending-requests=9223372036854775807",
    "--default-thinking-budget=9223372036854775807",
    "--default-max-tokens=9223372036854775807",
    "--pending-timeout-ms=9223372036854775807",
    "--response-store-max-records=9223372036854775807",
    "--thinking-budget-message=",
]


@pytest.mark.contract("OPT-077")
@pytest.mark.parametrize("option", EXTREMES)
def test_an_extreme_value_opens_the_house_or_is_one_line(
    option: str, golden_chat_artifact: Path, tmp_path: Path
) -> None:
    """Values that their option takes, against an artifact that is there."""
    _, bound, _ = build_app()["serve"].parse_args(
        [str(golden_chat_artifact), f"--cache-dir={tmp_path}", option], exit_on_error=False, print_error=False
    )
    said = ""
    try:
        open_house(golden_chat_artifact, bound.arguments["options"], lambda progress: None)
    except Failure as failure:
        said = str(failure)
    assert not said or option.split("=")[0].strip("-").split("-")[-1] in one_line(said)
