"""The shape of files: length, head, docstrings, nothing left for later."""

import ast
import re

import pytest

from tests.architecture.source import EVERYTHING, PRODUCT, Source, sources

FILE_LINES = 500
FUNCTION_LINES = 70
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")

every_source = pytest.mark.parametrize("source", sources(*EVERYTHING), ids=lambda source: source.name)
product_source = pytest.mark.parametrize("source", sources(*PRODUCT), ids=lambda source: source.name)


@every_source
def test_files_and_functions_fit(source: Source) -> None:
    assert len(source.text.splitlines()) <= FILE_LINES
    too_long = [
        f"{node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for node in source.functions()
        if node.end_lineno is not None and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]
    assert not too_long


@every_source
def test_nothing_is_left_for_later(source: Source) -> None:
    assert not UNFINISHED.search(source.text)


@product_source
def test_files_say_what_they_are(source: Source) -> None:
    assert not source.text.strip() or ast.get_docstring(source.tree)


@product_source
def test_public_names_have_docstrings(source: Source) -> None:
    bare = [
        node.name
        for owner in ast.walk(source.tree)
        if isinstance(owner, (ast.Module, ast.ClassDef)) and not owner_is_private(owner)
        for node in owner.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and not (node.name.startswith("_") or ast.get_docstring(node) or is_overload(node))
    ]
    assert not bare


@product_source
def test_no_stub_and_no_swallowed_error(source: Source) -> None:
    faults = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Raise) and "NotImplementedError()" in ast.unparse(node):
            faults.append(f"line {node.lineno}: a stub without a reason")
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            if broad and all(isinstance(inner, (ast.Pass, ast.Continue)) for inner in node.body):
                faults.append(f"line {node.lineno}: swallows every exception")
    assert not faults


def owner_is_private(owner: ast.Module | ast.ClassDef) -> bool:
    return isinstance(owner, ast.ClassDef) and owner.name.startswith("_")


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Accessors that repeat a documented name (`@x.setter`, `@overload`, attrs' `@x.validator`) need no docstring."""
    return any(re.search(r"overload|setter|validator|default", ast.unparse(deco)) for deco in node.decorator_list)
