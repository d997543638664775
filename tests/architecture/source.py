"""The project's own files, as the architecture tests see them: paths and syntax trees, nothing imported."""

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]


@attrs.frozen
class Source:
    """One Python file of ours."""

    path: Path

    @property
    def name(self) -> str:
        """Path from the project's root, with slashes: what a failure shows."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        """The file's text."""
        return self.path.read_text(encoding="utf-8")

    @property
    def tree(self) -> ast.Module:
        """The file's syntax tree."""
        return ast.parse(self.text, self.name)

    @property
    def room(self) -> str:
        """`server` for src/ninfer/server/app.py, `engine/worker.py` for that file, the top folder for anything else."""
        parts = self.path.relative_to(ROOT).parts
        return parts[2] if parts[:2] == ("src", "ninfer") else parts[0]

    def imports(self) -> Iterator[str]:
        """Full dotted names of all that the file imports, wherever in it."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions and methods, inner ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node


def sources(*tops: str) -> list[Source]:
    """All Python files under the given folders of the project."""
    found = (Source(path) for top in tops for path in sorted((ROOT / top).rglob("*.py")))
    return [source for source in found if not any(part.startswith(".") for part in source.path.relative_to(ROOT).parts)]


PRODUCT = ("src", "kernels_pallas")
EVERYTHING = (*PRODUCT, "tests", "benchmarks", "examples", "tools")
