"""Documents tell of files that exist: links, trees, commands, names in backticks."""

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import attrs
import pytest

from ninfer.cli.bench import BenchOptions
from ninfer.cli.chat import chat
from ninfer.cli.convert import ConvertOptions
from ninfer.cli.inspect import InspectOptions
from ninfer.cli.options import ServeOptions
from ninfer.cli.selftest import SelftestOptions
from ninfer.cli.unbuilt import UnbuiltOptions
from ninfer.server.app import create_app
from ninfer.testing import FakeHost, post_json
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


async def test_the_documented_protocol_works_as_its_documented_test_says() -> None:
    protocol, test = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/plugins.md").read_text(encoding="utf-8"), re.DOTALL
    )
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(protocol, "docs/plugins.md", "exec"), names)
    exec(compile(test, "docs/plugins.md", "exec"), names)
    await names["test_echo"]()
    app = create_app(FakeHost(), (names["EchoLines"](FakeHost()),))
    answer = await post_json(app, "/v1/echo", {"text": 1})
    assert (answer.status, answer.json()["code"]) == (400, "invalid_value")


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
