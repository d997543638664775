"""Records on stderr: their form, and how many each level lets through."""

import logging
import re

import pytest

from ninfer.cli.logs import TRACE, log_to_stderr

LEVELS = ["trace", "debug", "info", "warning", "error", "critical"]


@pytest.mark.contract("LOG-001")
def test_a_record_has_time_level_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info")
    logging.getLogger("ninfer.server").info("ready: %s", "http://h")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO ready: http://h\n", captured.err)


@pytest.mark.contract("OPT-022")
@pytest.mark.parametrize("level", [*LEVELS, "off"])
def test_a_level_lets_through_itself_and_what_is_worse(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(level)
    ours = logging.getLogger("ninfer.engine")
    for number in (TRACE, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        ours.log(number, "said")
    written = [line.split()[2].lower() for line in capsys.readouterr().err.splitlines()]
    assert written == (LEVELS[LEVELS.index(level) :] if level != "off" else [])
