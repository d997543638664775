"""The pytest plugin for programs of a GPU that is not there: the fixture `h200`, and the marks that CI chooses by.

`deviceless` is set on every test that takes `h200`: it compiles for an H200 and is skipped where the CUDA plugin of jax
is not installed. `kernels` is set on every test under tests/kernels_pallas. `make test-kernels` runs both in an
environment that has the plugin and the jax of the GPU machine.
"""

from pathlib import Path

import pytest

from kernels_pallas.target import Target, missing_plugin

KERNELS = Path(__file__).parent / "kernels_pallas"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the marks before pytest chooses by them."""
    for item in items:
        if "h200" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.deviceless)
        if KERNELS in item.path.parents:
            item.add_marker(pytest.mark.kernels)


@pytest.fixture(scope="session")
def h200() -> Target:
    """A compile-only H200; the test is skipped where there is none."""
    if missing := missing_plugin():
        pytest.skip(missing)
    return Target()
