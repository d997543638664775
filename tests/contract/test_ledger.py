"""The bookkeeping itself: what counts as held, put off, open, and what is a fault."""

import attrs
import pytest

from tests.contract.ledger import (
    TestResult,
    mark_faults,
    parse_contract,
    parse_decisions,
    parse_later,
    refusal_faults,
    sort_key,
    stand,
    without,
)

KNOWN = ("AAA-001", "AAA-002", "AAA-003", "B-C-001", "D1")


def result(outcome: str, *ids: str) -> TestResult:
    return TestResult(ids=ids, outcome=outcome)


@pytest.mark.parametrize(
    ("ids", "known", "fault"),
    [
        (["AAA-001", "D1"], None, ""),
        (["AAA-001", "D1"], frozenset(KNOWN), ""),
        (["CACHE-HINT-001"], None, ""),
        (["AAA-1"], None, "neither"),
        (["aaa-001"], None, "neither"),
        (["D0"], None, "neither"),
        ([12], None, "neither"),
        (["AAA-009"], frozenset(KNOWN), "not in the contract"),
        (["AAA-009"], None, ""),
        ([f"AAA-{n:03d}" for n in range(6)], None, "6 ids"),
        ([f"AAA-{n:03d}" for n in range(5)], None, ""),
        (["AAA-001", "AAA-001"], None, "twice"),
    ],
)
def test_marks(ids: list[object], known: frozenset[str] | None, fault: str) -> None:
    found = mark_faults(ids, known)
    assert fault in "\n".join(found)
    assert bool(found) == bool(fault)


def test_contract_and_decisions_are_read() -> None:
    contract = "# x\n- AAA-001 · One. (L1)\n- AAA-002 · Two. (L2) (withdrawn)\n- not one\n- B-C-001 · Three. (L3)\n"
    assert tuple(parse_contract(contract)) == ("AAA-001", "B-C-001")
    assert parse_decisions("| # | about |\n|---|---|\n| D1 | a |\n| D44 | b |\n") == {"D1": " a |", "D44": " b |"}


@pytest.mark.parametrize(
    ("text", "reasons", "fault"),
    [
        ("# c\n\nAAA-001  not built\n", {"AAA-001": "not built"}, ""),
        ("AAA-001\n", {}, "expected"),
        ("AAA-001   \n", {}, "expected"),
        ("nonsense here\n", {}, "expected"),
        ("AAA-001  x\nAAA-001  y\n", {"AAA-001": "x"}, "twice"),
    ],
)
def test_later(text: str, reasons: dict[str, str], fault: str) -> None:
    found, faults = parse_later(text)
    assert found == reasons
    assert fault in "\n".join(faults)
    assert bool(faults) == bool(fault)


@pytest.mark.parametrize(
    ("outcomes", "where"),
    [
        (["passed"], "held"),
        (["passed", "skipped"], "held"),
        (["passed", "not run"], "held"),
        (["passed", "failed"], "failing"),
        (["failed"], "failing"),
        (["skipped"], "open"),
        (["not run"], "open"),
        ([], "open"),
    ],
)
def test_an_id_is_held_by_passing_tests_alone(outcomes: list[str], where: str) -> None:
    standing = stand(KNOWN, {}, {f"t{n}": result(outcome, "AAA-001") for n, outcome in enumerate(outcomes)})
    assert "AAA-001" in getattr(standing, where)
    assert sum("AAA-001" in group for group in (standing.held, standing.failing, standing.open)) == 1
    assert not standing.faults


def test_put_off_and_held_is_a_fault() -> None:
    standing = stand(KNOWN, {"AAA-001": "not built", "AAA-002": "not built"}, {"t": result("passed", "AAA-001")})
    assert standing.faults == ("AAA-001 stands in later.txt, but t holds it",)


def test_unknown_ids_are_faults() -> None:
    standing = stand(KNOWN, {"AAA-777": "not built"}, {"t": result("passed", "D9")})
    assert standing.faults == ("AAA-777 is not in the contract", "D9 is not in the contract")


def test_decisions_are_ordered_by_number() -> None:
    assert sorted(["D10", "B-C-001", "D2", "AAA-002"], key=sort_key) == ["AAA-002", "B-C-001", "D2", "D10"]


def test_what_is_held_is_taken_out_of_later() -> None:
    text = "# head\n\n# one\nAAA-001  x\nAAA-002  x\n\n# two\nB-C-001  y\n"
    assert without(text, []) == text
    assert without(text, ["AAA-001"]) == "# head\n\n# one\nAAA-002  x\n\n# two\nB-C-001  y\n"
    assert without(text, ["B-C-001", "D1"]) == "# head\n\n# one\nAAA-001  x\nAAA-002  x\n"


def test_a_refusal_alone_holds_no_feature() -> None:
    statements = {
        "AAA-001": "Function tools are accepted, each with optional strict.",
        "AAA-002": "Media without vision fails with 400.",
        "AAA-003": "Images are accepted.",
        "AAA-004": "Images are accepted.",
    }
    refuses = TestResult(ids=(), outcome="passed", refuses=True)
    results = {"refuses": refuses, "serves": attrs.evolve(refuses, refuses=False)}
    held = {
        "AAA-001": ("refuses",),
        "AAA-002": ("refuses",),
        "AAA-003": ("refuses", "serves"),
        "AAA-004": ("serves",),
    }
    assert refusal_faults(statements, held, results) == ["AAA-001 is held by a refusal alone: refuses"]
