"""What all tests share: the plugin of the contract marks (and of `--shared`), Hypothesis profiles, logging put back.

Choose a profile with `--hypothesis-profile`; where the variable CI is set, `ci` is the default.
"""

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "tests.contract.marks", "tests.deviceless", "tests.fixtures"]

# No deadline: the machine is shared, and a slow example is no fault. `ci` repeats the same examples every time, so
# that a red run means a change; `dev` looks somewhere new on each run.
settings.register_profile(
    "dev", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, max_examples=40, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command sets up logging for its process, which here is that of all tests."""
    loggers = [logging.getLogger(), logging.getLogger("ninfer")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
