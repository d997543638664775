"""The virtual environment of `make`: a Python that is too old is told so, and what was half-made counts for nothing."""

import ast
import io
import sys
import tomllib
from pathlib import Path

import attrs
import pytest

from tests.architecture.source import ROOT
from tools.make_venv import LEAST, Line, Refused, Times, check_version, has_to_be_made, make, run, version_text


@attrs.define
class Steps:
    """In place of the commands: makes what `venv` would make, and fails at what it is told to fail at."""

    fails_at: str | None = None
    done: list[str] = attrs.field(factory=list)

    def __call__(self, text: str, step: str, command: list[str], times: Times, out: object) -> None:
        self.done.append(step)
        if step == "venv":
            python = Path(command[-1]) / "bin/python"
            python.parent.mkdir(exist_ok=True)
            python.symlink_to(sys.executable)
        if step == self.fails_at:
            raise Refused(f"this failed: {step}")


def made(folder: Path, steps: Steps, version: tuple[int, ...] = (3, 12, 1)) -> None:
    make(str(folder), None, Times(str(folder.parent)), io.StringIO(), steps, version)


def test_it_runs_on_the_pythons_that_it_refuses() -> None:
    ast.parse((ROOT / "tools/make_venv.py").read_text(encoding="utf-8"), feature_version=(3, 6))


def test_a_python_that_is_too_old_is_told_so_and_nothing_is_made(tmp_path: Path) -> None:
    """It blamed jaxlib, and left a folder that failed the next run with a newer Python."""
    steps = Steps()
    with pytest.raises(Refused, match=r"NInfer needs Python 3\.11 or newer, and \S+ is Python 3\.10\.13: "):
        made(tmp_path / "venv", steps, (3, 10, 13))
    assert steps.done == []
    assert not (tmp_path / "venv").exists()
    made(tmp_path / "venv", steps)
    assert steps.done == ["venv", "install "]


@pytest.mark.parametrize(
    ("installed", "advice"),
    [({"python3.12": (3, 12, 1), "python3.11": (3, 11, 7)}, "PYTHON=python3.12"), ({}, "install a newer one")],
)
def test_a_newer_python_is_named_where_there_is_one(installed: dict[str, tuple[int, ...]], advice: str) -> None:
    with pytest.raises(Refused, match=advice):
        check_version((3, 6, 15), "python3", installed.get)
    check_version((3, 11, 0), "python3", installed.get)


@pytest.mark.parametrize("fails_at", ["venv", "install "])
def test_what_was_half_made_is_made_anew(tmp_path: Path, fails_at: str) -> None:
    folder, steps = tmp_path / "venv", Steps(fails_at)
    with pytest.raises(Refused):
        made(folder, steps)
    (folder / "left over").touch()
    steps = Steps()
    made(folder, steps)
    assert steps.done == ["venv", "install "]
    assert sorted(path.name for path in folder.iterdir()) == ["bin"]


def test_what_is_made_is_kept_when_a_later_installation_fails(tmp_path: Path) -> None:
    """It may hold what its user installed beside; the rule of make is not fulfilled, so the next run installs again."""
    folder = tmp_path / "venv"
    made(folder, Steps())
    steps = Steps("install ")
    with pytest.raises(Refused):
        made(folder, steps)
    assert steps.done == ["install "]
    assert (folder / "bin/python").exists()


@pytest.mark.parametrize(
    ("version", "line"), [(None, "has no Python that runs"), ((3, 10, 13), "has Python 3.10.13, and NInfer needs")]
)
def test_a_folder_of_another_hand_is_not_removed(tmp_path: Path, version: tuple[int, ...] | None, line: str) -> None:
    with pytest.raises(Refused, match=line):
        has_to_be_made(str(tmp_path), lambda python: version)
    assert tmp_path.exists()


def test_a_step_says_how_long_it_took_last_time_and_what_failed(tmp_path: Path) -> None:
    times, out = Times(str(tmp_path / "cache")), io.StringIO()
    run("saying so", "say", [sys.executable, "-c", "print('so')"], times, out)
    assert out.getvalue().splitlines()[0] == "saying so"
    times.note("say", 12.4)
    run("saying so", "say", [sys.executable, "-c", "print('so')"], times, out)
    assert "saying so (12 s last time)" in out.getvalue()
    with pytest.raises(Refused, match="this failed: "):
        run("failing", "fail", [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], times, out)
    assert "the reason" in out.getvalue()
    assert times.last("fail") is None


def test_what_cannot_be_remembered_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "make-seconds.json").write_text("[", encoding="utf-8")
    assert Times(str(tmp_path)).last("venv") is None
    (tmp_path / "file").touch()
    Times(str(tmp_path / "file/below")).note("venv", 1.0)


class Terminal(io.StringIO):
    """A terminal that keeps what was shown."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_ends_with_the_plain_line() -> None:
    terminal = Terminal()
    with Line("installing", terminal) as line:
        line.tell("Collecting   jax\n")
    assert terminal.getvalue().endswith("\r\033[Kinstalling\n")


def test_the_makefile_makes_its_folders_with_it() -> None:
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert rules.count("tools/make_venv.py $(") == 3
    assert "-m venv" not in rules
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={version_text(LEAST)}"
