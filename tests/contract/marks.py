"""The pytest plugin behind `@pytest.mark.contract("CHAT-012", "D31")`.

At collection it checks every mark; after a run it keeps how the marked tests ended in pytest's cache, where
`python -m tests.contract_report` finds it. A run of some tests updates only those. It knows no statement, only ids.
"""

import inspect
from collections.abc import Generator
from pathlib import Path

import attrs
import pytest

from tests.contract.ledger import TestResult, mark_faults, parse_contract, parse_decisions

CACHE_KEY = "ninfer/contract"
"""Where results lie in pytest's cache: {test name: [outcome, [id, ...]]}."""

UNBUILT = ("unsupported_parameter", "vision_disabled", "not in this build")
"""What a part that is not built answers (D40)."""

_COLLECTED = pytest.StashKey[dict[str, TestResult]]()
_OUTCOMES = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--shared` names the folder with contract, templates and tokenizers that are not part of this repository."""
    parser.addoption(
        "--shared",
        metavar="PATH",
        help="folder with spec/ and data/ that some tests need (default: ../shared beside this one, if there)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start with nothing collected."""
    config.addinivalue_line("markers", "contract(*ids): contract ids and decision numbers that the test holds")
    config.stash[_COLLECTED] = {}
    config.stash[_OUTCOMES] = {}


def shared_folder(config: pytest.Config) -> Path | None:
    """The folder that `--shared` names, or the one beside the checkout; None if there is none."""
    given = config.getoption("--shared")
    if given is None:
        beside = config.rootpath.parent / "shared"
        return beside if beside.is_dir() else None
    folder = Path(given).resolve()
    if not folder.is_dir():
        raise pytest.UsageError(f"--shared {given}: no such folder")
    return folder


@pytest.fixture(scope="session")
def shared(pytestconfig: pytest.Config) -> Path:
    """Folder with templates, tokenizers and recorded requests of others; the test is skipped where it is absent."""
    folder = shared_folder(pytestconfig)
    if folder is None:
        pytest.skip("needs --shared PATH")
    return folder


def known_ids(shared: Path | None) -> frozenset[str] | None:
    """All ids that exist, or None where no contract file is at hand."""
    if shared is None or not (shared / "spec/contract.md").is_file():
        return None
    contract = parse_contract((shared / "spec/contract.md").read_text(encoding="utf-8"))
    decisions = shared / "spec/decisions.md"
    return frozenset(contract) | frozenset(
        parse_decisions(decisions.read_text(encoding="utf-8")) if decisions.is_file() else ()
    )


def asserts_refusal(item: pytest.Item) -> bool:
    """Whether the test's source or its parameters name what a part that is not built answers."""
    function = getattr(item, "function", None)
    source = inspect.getsource(function) if function is not None else ""
    parameters = repr(item.callspec.params) if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""
    return any(answer in text for answer in UNBUILT for text in (source, parameters))


def collected(config: pytest.Config) -> dict[str, TestResult]:
    """The marked tests of this session by name, none of them run yet."""
    return config.stash[_COLLECTED]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the marks of everything that was found, before `-m` and `-k` choose from it."""
    known = known_ids(shared_folder(config))
    faults: list[str] = []
    for item in items:
        ids = [id_ for mark in item.iter_markers("contract") for id_ in mark.args]
        empty = any(not mark.args for mark in item.iter_markers("contract"))
        found = mark_faults(ids, known) + (["a contract mark without an id"] if empty else [])
        faults += [f"{item.nodeid}: {fault}" for fault in found]
        if ids and not found:
            config.stash[_COLLECTED][item.nodeid] = TestResult(
                ids=tuple(map(str, ids)), outcome="not run", refuses=asserts_refusal(item)
            )
    if faults:
        raise pytest.UsageError("contract marks:\n  " + "\n  ".join(faults))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the outcome of each marked test; a failed set-up or tear-down fails the test."""
    report = yield
    outcomes = item.config.stash[_OUTCOMES]
    if item.nodeid in item.config.stash[_COLLECTED]:
        # An expected failure that passes says nothing certain about the statement: it does not hold it.
        outcome = "skipped" if hasattr(report, "wasxfail") else report.outcome
        before = outcomes.get(item.nodeid, "passed")
        outcomes[item.nodeid] = next(word for word in ("failed", "skipped", "passed") if word in (before, outcome))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Merge what has run into what is known from earlier runs."""
    marked, outcomes = session.config.stash[_COLLECTED], session.config.stash[_OUTCOMES]
    cache = getattr(session.config, "cache", None)
    if not outcomes or cache is None:
        return
    stored = cache.get(CACHE_KEY, {})
    stored.update({name: [outcome, list(marked[name].ids)] for name, outcome in outcomes.items()})
    cache.set(CACHE_KEY, stored)


def last_results(config: pytest.Config) -> dict[str, TestResult]:
    """The tests marked now, each with its last outcome as far as it ran with the ids that it marks now."""
    cache = getattr(config, "cache", None)
    stored = cache.get(CACHE_KEY, {}) if cache is not None else {}
    results = {}
    for name, test in collected(config).items():
        outcome, ids = stored.get(name, ["not run", []])
        results[name] = attrs.evolve(test, outcome=outcome if tuple(ids) == test.ids else "not run")
    return results
