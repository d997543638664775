"""What a wheel carries beside modules, what stays behind, and what it says that it needs."""

import ast
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import attrs
import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = {"ninfer", "kernels_pallas"}
IN_OUR_BOUNDS = {"h11", "hypercorn", "jax", "jaxlib", "quart", "quart-trio", "werkzeug"}
"""What we use beyond its documented surface, or what has broken us: a version that was not tried is not taken."""


@attrs.frozen
class Wheel:
    """The wheel of this checkout."""

    texts: Mapping[str, bytes]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.texts)

    def in_info(self, name: str) -> str:
        """A file of the metadata folder."""
        (path,) = (path for path in self.texts if path.endswith(f".dist-info/{name}"))
        return self.texts[path].decode("utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    (file,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    with zipfile.ZipFile(file) as opened:
        return Wheel({name: opened.read(name) for name in opened.namelist()})


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("ninfer/demo/demo.ninfer", "src/ninfer/demo/demo.ninfer"),
        ("ninfer/prompt/maintained.jinja", "src/ninfer/prompt/maintained.jinja"),
        ("ninfer/py.typed", "src/ninfer/py.typed"),
        ("kernels_pallas/py.typed", "kernels_pallas/py.typed"),
    ],
)
def test_what_modules_need_is_there(path: str, source: str, wheel: Wheel) -> None:
    assert wheel.texts[path] == (ROOT / source).read_bytes()


def test_nothing_but_the_two_packages_is_there(wheel: Wheel) -> None:
    folders = {name.split("/")[0] for name in wheel.names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == OURS


def test_licences_and_notices_are_there(wheel: Wheel) -> None:
    """WordNet's terms and the attribution of GeoNames go with the model that was made with them."""
    assert wheel.in_info("licenses/LICENSE")
    notices = wheel.in_info("licenses/THIRD_PARTY_NOTICES.md")
    assert "WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved." in notices
    assert "LICENSEE agrees to preserve same." in notices
    assert "GeoNames (https://www.geonames.org)" in notices
    assert "https://creativecommons.org/licenses/by/4.0/" in notices


def test_every_source_of_the_demonstration_model_has_its_notice() -> None:
    card = (ROOT / "docs/demo-model.md").read_text(encoding="utf-8")
    table = card.split("## Sources", 1)[1].split("\n## ", 1)[0]
    sources = re.findall(r"^\| ([\w-]+) [\d.]+ \(", table, re.MULTILINE)
    assert len(sources) == 6
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text(encoding="utf-8").lower()
    assert not [name for name in sources if name.removesuffix("-base").lower() not in notices]


def test_the_description_works_on_an_index_page(wheel: Wheel) -> None:
    """There are no files beside it there, so a relative link leads nowhere."""
    description = wheel.in_info("METADATA").split("\n\n", 1)[1]
    assert description.startswith("# NInfer")
    assert not [target for target in re.findall(r"\]\(([^)]*)\)", description) if "://" not in target]


def imported(files: Iterable[Path]) -> set[str]:
    """Top-level modules that are imported anywhere, in functions too, other than ours and the interpreter's."""
    found: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module.split(".")[0])
    return found - OURS - set(sys.stdlib_module_names)


def requirements(lines: Iterable[str]) -> dict[str, Requirement]:
    return {canonicalize_name(one.name): one for one in map(Requirement, lines)}


def test_what_is_imported_is_declared() -> None:
    """A package that comes only because another one asks for it may leave, or change, with any release of that one."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "kernels_pallas").rglob("*.py")]
    modules = imported(files)
    assert {"quart", "werkzeug", "h11"} <= modules
    distributions = packages_distributions()
    needed = {canonicalize_name(name) for module in modules for name in distributions[module]}
    declared = requirements(PROJECT["dependencies"])
    optional = requirements(PROJECT["optional-dependencies"]["chart"])
    assert needed - set(declared) == set(optional) & needed
    assert not set(declared) - needed, "declared and not imported"


def test_what_has_broken_us_has_an_upper_bound() -> None:
    declared = requirements(PROJECT["dependencies"])
    unbounded = {name for name in IN_OUR_BOUNDS if not any(one.operator == "<" for one in declared[name].specifier)}
    assert not unbounded
    assert not declared["quart"].specifier.contains("0.23.1"), "quart-trio 0.12 cannot be imported with it"
