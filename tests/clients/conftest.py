"""One artifact for all clients of a session."""

from pathlib import Path

import pytest

from tools.wide_artifact import write_wide_artifact


@pytest.fixture(scope="session")
def wide_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden tokenizer and chat template with room for agents' prompts."""
    entry = tmp_path_factory.mktemp("wide") / "wide.ninfer"
    write_wide_artifact(entry)
    return entry
