"""What several test modules of processes share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def golden_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for servers of the golden model with the same flags: whoever comes second compiles nothing."""
    return tmp_path_factory.mktemp("golden_cache")
