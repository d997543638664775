"""Documents name options that exist, and the README's table gives the defaults that the program has."""

import ast
import re
from pathlib import Path

import attrs
import pytest

from ninfer.cli.options import ServeOptions
from ninfer.cli.unbuilt import UnbuiltOptions
from tests.architecture.source import ROOT, sources
from tests.architecture.test_docs import every_document

OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")


def serve_defaults() -> dict[str, object]:
    """Option name -> default, of everything that `serve` takes."""
    found: dict[str, object] = {}
    for group in attrs.fields(ServeOptions):
        options = getattr(ServeOptions(), group.name)
        found |= {field.name.replace("_", "-"): getattr(options, field.name) for field in attrs.fields(type(options))}
    unbuilt = UnbuiltOptions()
    return found | {
        field.name.replace("_", "-"): getattr(unbuilt, field.name) for field in attrs.fields(UnbuiltOptions)
    }


def other_options() -> set[str]:
    """Options of the other commands: keyword parameters of `cli`, and whatever our own parsers add."""
    found: set[str] = set()
    for source in sources("src/ninfer/cli"):
        for function in source.functions():
            found |= {argument.arg.replace("_", "-") for argument in function.args.kwonlyargs}
    for source in sources("tests", "benchmarks", "tools"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
                found.add(node.value.removeprefix("--").partition("=")[0])
    return found


@every_document
def test_options_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    known = set(serve_defaults()) | other_options()
    assert {name for name in OPTION.findall(text) if name not in known} == set()


def table_rows() -> list[tuple[list[str], list[str]]]:
    """Options and defaults of each row of the README's table whose defaults are values of the program."""
    rows = re.findall(r"^\| (`--[^|]*) \| ([^|]*) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    return [(OPTION.findall(names), [value.strip() for value in defaults.split(",")]) for names, defaults in rows]


def test_the_table_gives_the_defaults() -> None:
    defaults, compared = serve_defaults(), 0
    for names, values in table_rows():
        if len(names) == len(values) and all(re.fullmatch(r"[\d.]+|auto", value) for value in values):
            assert values == [str(defaults[name]) for name in names]
            compared += 1
    assert compared >= 6


@pytest.mark.parametrize("name", ["host", "port", "max-context", "model-id", "greedy"])
def test_the_table_has_what_everybody_needs(name: str) -> None:
    assert name in {option for names, _ in table_rows() for option in names}
