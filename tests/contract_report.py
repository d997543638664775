"""`python -m tests.contract_report --contract FILE`: which statements of the contract the tests hold.

It collects the tests (so that all marks are checked), joins them with the results of the last runs that pytest's
cache keeps, and prints per section what is held, what stands in `tests/contract/later.txt` and what is open. It runs
no test unless `--run` asks for it. Exit status 1: a fault in the marks or in later.txt, a failed test, an id
that is held by nothing but refusals of a part that is not built.

Options:
  --contract FILE   the contract; `decisions.md` beside it gives the decision numbers. Without it only marks are checked
  --audit SEED      draw 40 held ids, with the tests that hold them, for a check by fault injection
  --run             run `pytest -m "not slow"` first
  --settle          take the ids that are held out of later.txt
  --later FILE      another list of what is put off
"""

import argparse
import contextlib
import io
import random
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.contract.ledger import (
    Standing,
    TestResult,
    parse_contract,
    parse_decisions,
    parse_later,
    prefix_of,
    refusal_faults,
    stand,
    without,
)
from tests.contract.marks import last_results

AUDIT_IDS = 40
LATER = Path(__file__).parent / "contract" / "later.txt"


class _Collector:
    """Takes the marked tests and their last results out of a collecting session."""

    def __init__(self) -> None:
        self.results: dict[str, TestResult] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.results = last_results(session.config)


def shared_arguments(contract: Path | None) -> list[str]:
    """Pytest's `--shared` for a contract that lies in such a folder, so that marks are checked against it."""
    return (
        [f"--shared={contract.resolve().parent.parent}"]
        if contract and contract.resolve().parent.name == "spec"
        else []
    )


def collect(arguments: Sequence[str]) -> tuple[dict[str, TestResult], str]:
    """All marked tests with their last outcome; the second value tells what went wrong, empty if nothing did."""
    collector, said = _Collector(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = pytest.main(["--collect-only", "-q", *arguments], plugins=[collector])
    return collector.results, "" if status in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ) else said.getvalue()


def section_lines(known: Iterable[str], standing: Standing) -> list[str]:
    """The report's body: one paragraph for each section, in the order of the contract."""
    sections: dict[str, list[str]] = {}
    for id_ in known:
        sections.setdefault(prefix_of(id_), []).append(id_)
    lines = []
    for prefix, ids in sections.items():
        groups = {
            "held": [id_ for id_ in ids if id_ in standing.held],
            "failing": [id_ for id_ in ids if id_ in standing.failing],
            "later": [id_ for id_ in ids if id_ in standing.later],
            "open": [id_ for id_ in ids if id_ in standing.open],
        }
        lines.append(f"{prefix}: {len(groups['held'])} of {len(ids)} held")
        for word, members in groups.items():
            if members:
                numbers = " ".join(id_.removeprefix(prefix).removeprefix("-") for id_ in members)
                whole = len(members) == len(ids)
                shown = f"{len(members)}: {'all' if whole else numbers}"
                lines += textwrap.wrap(shown, 110, initial_indent=f"  {word:<7} ", subsequent_indent=" " * 10)
    return lines


def audit_lines(standing: Standing, seed: int) -> list[str]:
    """Held ids drawn by `seed`, each with the tests that hold it."""
    held = sorted(standing.held)
    drawn = random.Random(seed).sample(held, min(AUDIT_IDS, len(held)))
    lines = [f"audit {seed}: {len(drawn)} of {len(held)} held ids"]
    for id_ in drawn:
        tests = standing.held[id_]
        lines.append(f"  {id_:<14} {tests[0]}")
        lines += [f"  {'':<14} {name}" for name in tests[1:3]]
        if len(tests) > 3:
            lines.append(f"  {'':<14} and {len(tests) - 3} more")
    return lines


def report(contract: Path, later: Path, results: dict[str, TestResult], audit: int | None) -> int:
    """Print the whole report; returns the exit status."""
    decisions = contract.parent / "decisions.md"
    known = parse_contract(contract.read_text(encoding="utf-8"))
    known |= parse_decisions(decisions.read_text(encoding="utf-8")) if decisions.is_file() else {}
    reasons, faults = parse_later(later.read_text(encoding="utf-8"))
    standing = stand(known, reasons, results)
    print("\n".join(section_lines(known, standing)))
    not_run = sum(result.outcome == "not run" for result in results.values())
    print(
        f"together: {len(standing.held)} held, {len(standing.failing)} failing, {len(standing.later)} later, "
        f"{len(standing.open)} open, of {len(known)}; {len(results)} marked tests"
        + (f", {not_run} of them not run yet" if not_run else "")
    )
    if audit is not None:
        print("\n".join(audit_lines(standing, audit)))
    faults += standing.faults
    faults += refusal_faults(known, standing.held, results)
    faults += [f"{id_} is marked by a failed test: {names[0]}" for id_, names in standing.failing.items()]
    print("\n".join(f"fault: {fault}" for fault in faults), end="\n" if faults else "")
    return 1 if faults else 0


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract_report", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--contract", type=Path, metavar="FILE")
    parser.add_argument("--audit", type=int, metavar="SEED")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--settle", action="store_true")
    parser.add_argument("--later", type=Path, metavar="FILE", default=LATER)
    options = parser.parse_args(arguments)
    if options.contract is not None and not options.contract.is_file():
        parser.error(f"--contract {options.contract}: no such file")
    if options.contract is None and (options.audit is not None or options.settle):
        parser.error("--audit and --settle need --contract")
    if options.run:
        subprocess.run(
            [sys.executable, "-m", "pytest", "-m", "not slow", *shared_arguments(options.contract)], check=False
        )
    results, wrong = collect(shared_arguments(options.contract))
    if wrong:
        print(wrong)
        return 1
    if options.settle:
        held = stand((), {}, results).held
        options.later.write_text(without(options.later.read_text(encoding="utf-8"), held), encoding="utf-8")
    if options.contract is None:
        _, faults = parse_later(options.later.read_text(encoding="utf-8"))
        print("\n".join(faults), end="\n" if faults else "")
        print(f"no contract file given: only the marks of {len(results)} tests were checked")
        return 1 if faults else 0
    return report(options.contract, options.later, results, options.audit)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
