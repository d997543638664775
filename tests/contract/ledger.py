"""The contract's bookkeeping: which ids exist, which are put off, which a run of the tests holds.

Pure functions over text and over the results of a run. It knows nothing of pytest and opens no file. The statements
themselves are kept outside this repository; only their ids appear here.

Invariant: an id is in exactly one state, and an id that is both put off and held is reported as a fault.
"""

import re
from collections.abc import Iterable, Mapping

import attrs

MAX_IDS_PER_TEST = 5
"""More than this in one test, and no failure would tell which statement broke."""

ID = re.compile(r"(?P<prefix>[A-Z]+(?:-[A-Z]+)*)-(?P<number>[0-9]{3})|D[1-9][0-9]?")
_STATEMENT = re.compile(r"^- (?P<id>[A-Z]+(?:-[A-Z]+)*-[0-9]{3}) · (?P<text>.*)$", re.MULTILINE)
_DECISION = re.compile(r"^\| (?P<id>D[1-9][0-9]?) \|(?P<text>.*)$", re.MULTILINE)
_SAYS_NO = re.compile(
    r"\b(4\d\d|abort\w*|ends? the start|errors?|fails?|invalid\w*|refus\w*|reject\w*|unsupported"
    r"|\w+_(disabled|parameter))\b",
    re.IGNORECASE,
)
"""What a statement says that a refusal may hold."""


@attrs.frozen(kw_only=True)
class TestResult:
    """What one test marks and how it ended last."""

    __test__ = False

    ids: tuple[str, ...]
    outcome: str
    """`passed`, `failed`, `skipped` or `not run`."""
    refuses: bool = False
    """What it asserts is that a part is not built, as far as its text shows."""


@attrs.frozen(kw_only=True)
class Standing:
    """Where every id stands. Each mapping goes from an id to what explains it."""

    held: Mapping[str, tuple[str, ...]]
    """Ids with the tests that hold them: all of those that ran have passed."""
    failing: Mapping[str, tuple[str, ...]]
    """Ids with the failed tests that mark them."""
    later: Mapping[str, str]
    """Ids whose part is not built, with the reason."""
    open: tuple[str, ...]
    """Known ids that no passing test marks and no reason puts off."""
    faults: tuple[str, ...]


def is_id(text: str) -> bool:
    """Whether `text` looks like a contract id (CHAT-012) or a decision (D31)."""
    return ID.fullmatch(text) is not None


def prefix_of(id_: str) -> str:
    """The section an id belongs to: CHAT for CHAT-012, D for D31."""
    return id_.rsplit("-", 1)[0] if "-" in id_ else "D"


def sort_key(id_: str) -> tuple[str, int]:
    """Order by section, then by number: D2 before D10."""
    return prefix_of(id_), int(id_.rsplit("-", 1)[1] if "-" in id_ else id_[1:])


def parse_contract(text: str) -> dict[str, str]:
    """The statements of a contract file by id, in its order, without the withdrawn ones."""
    return {found["id"]: found["text"] for found in _STATEMENT.finditer(text) if "(withdrawn)" not in found["text"]}


def parse_decisions(text: str) -> dict[str, str]:
    """The rows of a decisions table by number."""
    return {found["id"]: found["text"] for found in _DECISION.finditer(text)}


def parse_later(text: str) -> tuple[dict[str, str], list[str]]:
    """Read `ID  reason` lines; `#` starts a comment line. Returns reasons by id, and faults."""
    reasons: dict[str, str] = {}
    faults: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        id_, _, reason = line.partition(" ")
        if not is_id(id_) or not reason.strip():
            faults.append(f"later.txt:{number}: expected `ID  reason`, found {line!r}")
        elif id_ in reasons:
            faults.append(f"later.txt:{number}: {id_} stands there twice")
        else:
            reasons[id_] = reason.strip()
    return reasons, faults


def without(text: str, ids: Iterable[str]) -> str:
    """The text of later.txt without the lines of `ids`; a group that has lost all its lines loses its heading."""
    gone = set(ids)
    groups = []
    for group in text.rstrip("\n").split("\n\n"):
        kept = [line for line in group.splitlines() if line.partition(" ")[0] not in gone]
        had_ids = any(not line.startswith("#") for line in group.splitlines())
        if not had_ids or any(not line.startswith("#") for line in kept):
            groups.append("\n".join(kept))
    return "\n\n".join(groups) + "\n"


def mark_faults(ids: Iterable[object], known: frozenset[str] | None) -> list[str]:
    """What is wrong with the ids of one test; `known` is None while no contract file is at hand."""
    listed = list(ids)
    faults = [f"{id_!r} is neither a contract id nor a decision" for id_ in listed if not is_id(str(id_))]
    texts = [str(id_) for id_ in listed if is_id(str(id_))]
    if known is not None:
        faults += [f"{id_} is not in the contract" for id_ in texts if id_ not in known]
    if len(set(texts)) > MAX_IDS_PER_TEST:
        faults.append(f"{len(set(texts))} ids, at most {MAX_IDS_PER_TEST} a test")
    if len(set(texts)) < len(texts):
        faults.append("an id is marked twice")
    return faults


def stand(known: Iterable[str], later: Mapping[str, str], results: Mapping[str, TestResult]) -> Standing:
    """Where every known id stands after a run; `results` goes from test names to what they mark and how they ended."""
    known_ids = list(known)
    passed, failed = _tests_by_id(results, "passed"), _tests_by_id(results, "failed")
    held = {id_: tests for id_, tests in passed.items() if id_ not in failed}
    both = sorted(set(later) & set(held), key=sort_key)
    faults = [f"{id_} stands in later.txt, but {held[id_][0]} holds it" for id_ in both]
    unknown = sorted((set(later) | set(passed) | set(failed)) - set(known_ids), key=sort_key)
    faults += [f"{id_} is not in the contract" for id_ in unknown]
    return Standing(
        held=held,
        failing=failed,
        later=later,
        open=tuple(id_ for id_ in known_ids if not (id_ in held or id_ in failed or id_ in later)),
        faults=tuple(faults),
    )


def refusal_faults(
    statements: Mapping[str, str], held: Mapping[str, tuple[str, ...]], results: Mapping[str, TestResult]
) -> list[str]:
    """Ids that only tests of "not in this build" hold, though their statements ask for a feature and for no refusal."""
    return [
        f"{id_} is held by a refusal alone: {names[0]}"
        for id_, names in held.items()
        if all(results[name].refuses for name in names) and not _SAYS_NO.search(statements.get(id_, "no statement"))
    ]


def _tests_by_id(results: Mapping[str, TestResult], outcome: str) -> dict[str, tuple[str, ...]]:
    """Names of the tests that ended with `outcome`, by the ids that they mark."""
    tests: dict[str, tuple[str, ...]] = {}
    for name, result in sorted(results.items()):
        for id_ in result.ids if result.outcome == outcome else ():
            tests[id_] = (*tests.get(id_, ()), name)
    return tests
