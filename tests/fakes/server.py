"""What is in `ninfer.testing` now, under its old name."""

from ninfer.testing import *  # noqa: F403
