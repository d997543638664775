"""The seed of the fuzz tests: `NINFER_FUZZ_SEED` repeats a run, and where CI is set the seed is fixed."""

import os
import random

import pytest


@pytest.fixture
def seed(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> int:
    """The seed of this run, printed whatever the outcome."""
    given = os.environ.get("NINFER_FUZZ_SEED") or (1 if os.environ.get("CI") else random.SystemRandom().getrandbits(32))
    with capsys.disabled():
        print(f"\n{request.node.name}: NINFER_FUZZ_SEED={given}", end=" ")
    return int(given)
