"""What a wheel carries beside modules, and what stays behind."""

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """All paths in the wheel of this checkout."""
    (file,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    with zipfile.ZipFile(file) as wheel:
        return frozenset(wheel.namelist())


@pytest.mark.parametrize("path", ["ninfer/demo/demo.ninfer", "ninfer/prompt/maintained.jinja", "ninfer/py.typed"])
def test_what_modules_need_is_there(path: str, names: frozenset[str]) -> None:
    assert path in names
    assert (ROOT / "src" / path).is_file()


def test_nothing_but_the_two_packages_is_there(names: frozenset[str]) -> None:
    folders = {name.split("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"ninfer", "kernels_pallas"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
