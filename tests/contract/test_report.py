"""The mark and the report as their users meet them: small suites that pytest runs in a folder of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACT = "- AAA-001 · One. (L1)\n- AAA-002 · Two. (L2)\n- AAA-003 · Three. (L3)\n- BBB-001 · Four. (L4)\n"
SUITE = """
import pytest

@pytest.mark.contract("AAA-001", "D1")
def test_one(): pass

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.contract("AAA-002")), 2])
def test_two(x): assert x == 1
"""


@pytest.fixture
def folder(pytester: pytest.Pytester) -> pytest.Pytester:
    """A suite with a contract of four statements and one decision beside it, and an empty list of what is put off."""
    pytester.makefile(".ini", pytest="[pytest]\naddopts = -p tests.contract.marks\n")
    spec = pytester.mkdir("given") / "spec"
    spec.mkdir()
    (spec / "contract.md").write_text(CONTRACT, encoding="utf-8")
    (spec / "decisions.md").write_text("| D1 | about | text |\n", encoding="utf-8")
    (pytester.path / "later.txt").write_text("BBB-001  not built\n", encoding="utf-8")
    return pytester


def run(folder: pytest.Pytester, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder.path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def report(folder: pytest.Pytester, *arguments: str) -> tuple[int, list[str]]:
    done = run(folder, "tests.contract_report", "--later", "later.txt", *arguments)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout.splitlines()


def test_report_after_a_run(folder: pytest.Pytester) -> None:
    folder.makepyfile(SUITE)
    assert "1 failed, 2 passed" in run(folder, "pytest", "--shared=given").stdout
    status, lines = report(folder, "--contract", "given/spec/contract.md", "--audit", "7")
    assert status == 0  # the failed case marks nothing
    assert lines[:6] == ["AAA: 2 of 3 held", "  held    2: 001 002", "  open    1: 003", "BBB: 0 of 1 held",
                         "  later   1: all", "D: 1 of 1 held"]  # fmt: skip
    assert "audit 7: 3 of 3 held ids" in lines
    assert any(line.split() == ["D1", "test_report_after_a_run.py::test_one"] for line in lines)


def test_a_partial_run_keeps_the_rest(folder: pytest.Pytester) -> None:
    path = folder.makepyfile(SUITE)
    run(folder, "pytest", "--shared=given")
    run(folder, "pytest", "--shared=given", "-k", "test_one")
    _, lines = report(folder, "--contract", "given/spec/contract.md")
    assert lines[0] == "AAA: 2 of 3 held"
    path.write_text(SUITE.replace('"AAA-002"', '"AAA-003"'), encoding="utf-8")  # marked anew, and not run since
    _, lines = report(folder, "--contract", "given/spec/contract.md")
    assert lines[:2] == ["AAA: 1 of 3 held", "  held    1: 001"]


def test_faults_end_with_status_1(folder: pytest.Pytester) -> None:
    folder.makepyfile(SUITE.replace('"D1"', '"BBB-001"'))
    status, lines = report(folder, "--contract", "given/spec/contract.md", "--run")
    assert status == 1
    assert any(line.startswith("fault: BBB-001 stands in later.txt") for line in lines)
    status, lines = report(folder, "--contract", "given/spec/contract.md", "--settle")
    assert (status, lines[-1].startswith("fault")) == (0, False)
    assert (folder.path / "later.txt").read_text(encoding="utf-8").strip() == ""


def test_without_a_contract_only_marks_are_checked(folder: pytest.Pytester) -> None:
    path = folder.makepyfile(SUITE)
    assert report(folder) == (0, ["no contract file given: only the marks of 2 tests were checked"])
    path.write_text(SUITE.replace("AAA-001", "AAA-1"), encoding="utf-8")
    status, lines = report(folder)
    assert status == 1
    assert any("'AAA-1' is neither a contract id nor a decision" in line for line in lines)


def test_an_unknown_id_ends_the_collection(folder: pytest.Pytester) -> None:
    folder.makepyfile(SUITE.replace("AAA-001", "AAA-999"))
    done = run(folder, "pytest", "--shared=given")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "AAA-999 is not in the contract" in done.stderr


@pytest.mark.parametrize(
    "body",
    ["pytest.fail('no')", "pytest.skip('no')", "pytest.xfail('no')"],
    ids=["failed", "skipped", "expected failure"],
)
def test_only_a_pass_holds(folder: pytest.Pytester, body: str) -> None:
    folder.makepyfile(SUITE.replace("pass", body))
    run(folder, "pytest", "--shared=given")
    _, lines = report(folder, "--contract", "given/spec/contract.md")
    assert lines[:2] == ["AAA: 1 of 3 held", "  held    1: 002"]


def test_a_failed_teardown_does_not_hold(folder: pytest.Pytester) -> None:
    folder.makepyfile(
        SUITE.replace("def test_one(): pass", "def test_one(broken): pass")
        + """
@pytest.fixture
def broken():
    yield
    raise RuntimeError
"""
    )
    run(folder, "pytest", "--shared=given")
    _, lines = report(folder, "--contract", "given/spec/contract.md")
    assert lines[:2] == ["AAA: 1 of 3 held", "  held    1: 002"]
