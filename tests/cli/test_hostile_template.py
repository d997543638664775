"""A folder's template that never ends, in a server: everybody else is served, and signals are heard."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_serve import Process, raw_stream, read_all, served

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = a %}{% endfor %}{% endfor %}"
SWITCHED = "{{ messages[0].content }}{% if messages[0].content == 'spin' %}" + ENDLESS + "{% endif %}"


def children(pid: int) -> list[int]:
    """Processes that `pid` has started and that are still there."""
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def busy_s(pid: int) -> float:
    """Seconds that a process has worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spinning(process: Process) -> list[int]:
    """Wait until a rendering process is at it."""
    return until(lambda: [child for child in children(process.child.pid) if busy_s(child) > 1])


def until(look: Callable[[], list[int]], at_most_s: float = 60) -> list[int]:
    """What `look` finds as soon as it finds something: no event tells what another process does."""
    deadline_s = time.monotonic() + at_most_s
    while not (found := look()):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    return found


def test_a_template_that_never_ends_stops_neither_others_nor_the_server(
    golden_chat_artifact: Path, tmp_path: Path
) -> None:
    file = tmp_path / "hostile.jinja"
    file.write_text(SWITCHED)
    arguments = ("--engine", "scripted", "--max-context", "2048", "--chat-template", str(file))
    with served(golden_chat_artifact, tmp_path, *arguments) as process:
        left = raw_stream(process, "spin")
        found = spinning(process)
        assert process.chat("[[say:well]]")["choices"][0]["message"]["content"] == "well"
        left.close()  # a client that leaves takes its process with it
        until(lambda: [] if set(found) & set(children(process.child.pid)) else [process.child.pid])
        stays = raw_stream(process, "spin")
        spinning(process)
        with urllib.request.urlopen(process.base_url + "/health", timeout=10) as answer:
            assert answer.status == 200
        started = children(process.child.pid)
        status, errors = process.end(signal.SIGTERM)
        assert status == 0
        assert errors.splitlines()[-1].endswith("INFO server stopped")
        assert read_all(stays).startswith(b"HTTP/1.1 503 ")
    assert not [child for child in started if Path(f"/proc/{child}").exists()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_start_that_hangs_in_a_template(
    golden_chat_artifact: Path, tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "hostile.jinja"
    file.write_text(ENDLESS + "{{ messages[0].content }}")
    command = [sys.executable, "-m", "ninfer", "serve", str(golden_chat_artifact), "--port", "0"]
    options = ["--engine", "scripted", "--cache-dir", str(tmp_path), "--chat-template", str(file)]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as child:
        process = Process(child, "", "")
        (renderer,) = spinning(process)
        status, errors = process.end(number)
    assert status != 0
    assert "Traceback" not in errors
    assert not Path(f"/proc/{renderer}").exists()
