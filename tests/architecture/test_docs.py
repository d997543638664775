"""Documents tell of files that exist: links, trees, commands, names in backticks."""

import importlib
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest
import trio.testing

from ninfer.cli.bench import BenchOptions
from ninfer.cli.chat import chat
from ninfer.cli.convert import ConvertOptions
from ninfer.cli.inspect import InspectOptions
from ninfer.cli.options import ServeOptions
from ninfer.cli.selftest import SelftestOptions
from ninfer.cli.unbuilt import UnbuiltOptions
from ninfer.conversation import FinishReason, GenerationRequest, Role
from ninfer.protocols.mounting import ERROR_KINDS, check_protocol
from ninfer.protocols.plugin import Route
from ninfer.testing import FakeHost
from tests.architecture.source import ROOT

BENCHMARK_OPTIONS = {"--gguf", "--llama", "--models", "--prompt", "--tokens", "--write"}
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FILE_NAME = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.py)`")
COMMAND = re.compile(r"python -m ((?:ninfer|tests|benchmarks)[\w.]*)")
TREE_ENTRY = re.compile(r"^(?P<indent> *)(?P<name>[\w.-]+(?:/[\w.-]+)*/?)(?:\s{2,}\S.*)?$")

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_document
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        found = (document.parent / path).resolve() if path else document
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert not broken


@every_document
def test_file_names_are_those_of_files(document: Path) -> None:
    places = (ROOT, ROOT / "src/ninfer", document.parent)
    modules = {path.name for path in (ROOT / "src").rglob("*.py")}
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = [name for name in FILE_NAME.findall(text) if "." in name.rsplit("/", 1)[-1] or name.endswith("/")]
    assert not [name for name in names if name not in modules and not any((place / name).exists() for place in places)]


@every_document
def test_commands_exist(document: Path) -> None:
    for module in COMMAND.findall(document.read_text(encoding="utf-8")):
        path = module.rstrip(".").replace(".", "/")
        assert any(
            (ROOT / top / found).exists() for top in ("", "src") for found in (f"{path}.py", f"{path}/__main__.py")
        )


def options() -> set[str]:
    """Every option of every command, as it is written."""
    groups = [type(getattr(ServeOptions(), group.name)) for group in attrs.fields(ServeOptions)]
    classes = (*groups, UnbuiltOptions, ConvertOptions, SelftestOptions, BenchOptions, InspectOptions)
    names = {field.name for options in classes for field in attrs.fields(options)} | {
        *inspect.signature(chat).parameters
    }
    return {f"--{name.replace('_', '-')}" for name in names} | {"--help"}


@every_document
def test_options_exist(document: Path) -> None:
    if document.parent.name == "performance":
        return  # what was tried, with options of benchmarks and of others
    elsewhere = {"newcomers.md": {"--shared", "--contract"}, "performance.md": BENCHMARK_OPTIONS}
    named = set(re.findall(r"--[a-z][a-z0-9-]+", document.read_text(encoding="utf-8")))
    assert not named - options() - elsewhere.get(document.name, set())


def test_the_newcomers_functions_are_where_they_are_looked_for() -> None:
    text = (ROOT / "docs/newcomers.md").read_text(encoding="utf-8")
    stops = re.findall(r"^\d\. \*\*\[[^\]]*\]\(\.\./([^)]+)\), (.*?)\*\*", text, re.MULTILINE)
    assert len(stops) == 6
    for path, names in stops:
        source = (ROOT / path).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            assert re.search(rf"def {name.rpartition('.')[2]}\(", source), (path, name)


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md"])
def test_the_tree_is_the_real_one(name: str) -> None:
    """Every entry of the drawn trees exists, and every room stands in them."""
    drawn = drawn_paths((ROOT / name).read_text(encoding="utf-8"))
    assert drawn
    assert not [path for path in drawn if not (ROOT / path).exists()]
    rooms = {path.parent.name for path in (ROOT / "src/ninfer").glob("*/__init__.py")}
    assert rooms <= {path.removeprefix("src/ninfer/").strip("/") for path in drawn}


@pytest.fixture(scope="module")
def documented() -> dict[str, Any]:
    """What the Python of docs/plugins.md defines, all blocks in their order."""
    names: dict[str, Any] = {"__name__": "documented"}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/plugins.md").read_text("utf-8"), re.DOTALL):
        exec(compile(block, "docs/plugins.md", "exec"), names)
    return names


async def test_the_documented_protocols_work_as_their_documented_tests_say(
    documented: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    tests = [name for name in documented if name.startswith("test_")]
    assert len(tests) > 4
    for name in tests:
        clock = {"autojump_clock": autojump_clock} if inspect.signature(documented[name]).parameters else {}
        await documented[name](**clock)


def test_the_documented_protocols_can_be_loaded(documented: dict[str, Any]) -> None:
    for name in ("EchoLines", "Talk"):
        check_protocol(documented[name](FakeHost()))


def test_all_that_is_for_plugins_is_documented() -> None:
    text = (ROOT / "docs/plugins.md").read_text("utf-8")
    names = {*importlib.import_module("ninfer.testing").__all__} - {"ServerSettings", "Step", "OutOfOrder", "until"}
    names = {name for name in names if name != "RunningServer"}
    names |= {kind.__name__ for kind in ERROR_KINDS} | {reason.name for reason in FinishReason}
    names |= {field.name for owner in (Route, GenerationRequest) for field in attrs.fields(owner)} | {*get_args(Role)}
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()


def test_the_shown_entry_point_group_is_ours() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (group,) = project["entry-points"]
    assert f'[project.entry-points."{group}"]' in (ROOT / "docs/plugins.md").read_text(encoding="utf-8")


def drawn_paths(text: str) -> list[str]:
    """Paths of the entries of a fenced tree: two spaces of indent go one folder down."""
    paths: list[str] = []
    for block in re.findall(r"```\n(src/ninfer/\n.*?)```", text, re.DOTALL):
        above: list[str] = []
        for line in block.splitlines():
            found = TREE_ENTRY.match(line)
            assert found is not None, line
            del above[len(found["indent"]) // 2 :]
            above.append(found["name"])
            paths.append("".join(above))
    return paths
