"""What is said while a server starts and when it is ready."""

import io
import logging
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from ninfer.cli.options import DEFAULT_URL
from ninfer.cli.running import python, things_to_try, wait_text
from ninfer.cli.starting import StartTimes, moving_line


def test_how_long_it_took_last_time(tmp_path: Path) -> None:
    times = StartTimes(tmp_path / "cache")
    assert "for the first time" in wait_text(times, "a model")
    times.note("a model", 12.34)
    times.note("another", 3)
    assert wait_text(times, "a model") == "which took 12 s last time"


@pytest.mark.parametrize("content", ["[", "[]", '{"a model": "long"}'])
def test_what_cannot_be_read_is_not_known(content: str, tmp_path: Path) -> None:
    (tmp_path / "start-seconds.json").write_text(content, encoding="utf-8")
    times = StartTimes(tmp_path)
    assert times.last_s("a model") is None
    times.note("a model", 5)
    assert times.last_s("a model") == 5


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    times = StartTimes(tmp_path / "file")
    times.note("a model", 5)
    assert times.last_s("a model") is None


@pytest.mark.contract("LOG-008")
def test_the_line_moves_on_a_terminal_and_is_nowhere_else() -> None:
    shown = {}
    for terminal in (True, False):
        out = io.StringIO()
        logger = logging.getLogger("ninfer")
        logger.setLevel(logging.INFO)
        with moving_line(Console(file=out, force_terminal=terminal, width=100), "loading"):
            logger.info("preparing the device: prefill")
        shown[terminal] = out.getvalue()
    assert "preparing the device: prefill" in shown[True]
    assert shown[False] == ""


def test_three_things_to_try() -> None:
    chat, request, clients = things_to_try(DEFAULT_URL, "it's a model", needs_key=False)
    assert chat == f"talk to it: {python()} -m ninfer chat"
    words = shlex.split(request.removeprefix("one request: "))
    assert words[:2] == ["curl", f"{DEFAULT_URL}/v1/chat/completions"]
    assert words[-1].startswith('{"model": "it\'s a model", "messages"')
    assert f"{DEFAULT_URL}/v1" in clients


def test_another_address_is_named_and_a_key_is_asked_for() -> None:
    lines = things_to_try("http://127.0.0.1:9", "m", needs_key=True)
    assert lines[0].endswith("ninfer chat --url http://127.0.0.1:9")
    assert "Bearer KEY" in lines[1]
