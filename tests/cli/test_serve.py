"""`python -m ninfer serve` as a process: the ready line, answers, signals, exit statuses."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import attrs
import pytest

SOFT_DESCRIPTORS = 256
"""What a process begins with here: less than the usual limit, and enough for a start."""
READY = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO ready: (http://\S+) serves (.+)$")

STARTING = re.compile(r"INFO loading .*; (http://\S+) answers 503 until then$")


@attrs.frozen
class Process:
    """A server that is ready."""

    child: subprocess.Popen[str]
    base_url: str
    model: str

    def post(self, body: object, path: str = "/v1/chat/completions") -> IO[bytes]:
        request = urllib.request.Request(self.base_url + path, json.dumps(body).encode())
        answer: IO[bytes] = urllib.request.urlopen(request, timeout=20)
        return answer

    def chat(self, text: str, **members: Any) -> Any:
        messages = [{"role": "user", "content": text}]
        with self.post({"model": self.model, "messages": messages, **members}) as answer:
            return json.load(answer)

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; the exit status and what stderr still held."""
        self.child.send_signal(number)
        _, errors = self.child.communicate(timeout=20)
        return self.child.returncode, errors


@contextmanager
def served(artifact: Path | None, cache: Path, *arguments: str) -> Iterator[Process]:
    """Start a server on a free port and wait for its ready line. None: with no artifact named."""
    named = [] if artifact is None else [str(artifact)]
    command = [sys.executable, "-m", "ninfer", "serve", *named, "--port", "0", "--cache-dir", str(cache)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    few_descriptors = ["sh", "-c", f'ulimit -Sn {SOFT_DESCRIPTORS}; exec "$@"', "sh"]
    command = [*few_descriptors, *command, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as child:
        try:
            assert child.stderr is not None
            seen = []
            for line in child.stderr:
                seen.append(line)
                if found := READY.match(line):
                    yield Process(child, found[1], found[2])
                    break
            else:
                pytest.fail("".join(seen))
        finally:
            child.kill()


def raw_stream(process: Process, text: str) -> socket.socket:
    """A streamed request whose answer nobody reads."""
    host, port = process.base_url.removeprefix("http://").split(":")
    body = {"model": process.model, "messages": [{"role": "user", "content": text}], "stream": True}
    content = json.dumps(body).encode()
    wire = socket.create_connection((host, int(port)), timeout=20)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
    wire.sendall(head.encode() + content)
    return wire


@pytest.mark.contract("LIFE-012", "LIFE-014", "LIFE-015", "LIFE-016", "LIFE-019")
def test_a_server_from_start_to_stop(golden_chat_artifact: Path, tmp_path: Path) -> None:
    arguments = ("--engine", "scripted", "--max-context", "2048", "--max-concurrency", "2", "--model-id", "tiny model")
    with served(golden_chat_artifact, tmp_path, *arguments) as process:
        assert process.model == "tiny model"
        descriptors, _ = resource.prlimit(process.child.pid, resource.RLIMIT_NOFILE)
        assert descriptors > SOFT_DESCRIPTORS
        with urllib.request.urlopen(process.base_url + "/health", timeout=10) as answer:
            assert json.load(answer) == {"status": "ok"}
        assert process.chat("[[say:hello]]")["choices"][0]["message"]["content"] == "hello"
        foreign = urllib.request.Request(process.base_url + "/health", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(foreign, timeout=10)
        assert refused.value.code == 403

        running = raw_stream(process, "[[slow:60000]] [[say:x]]")
        queued = raw_stream(process, "[[slow:60000]] [[say:y]]")
        for wire in (running, queued):
            assert wire.recv(15) == b"HTTP/1.1 200 \r\n"
        # Sent when the others have their headers: its own would leave five seconds from now.
        waiting = raw_stream(process, "[[slow:60000]] [[say:z]]")
        with urllib.request.urlopen(process.base_url + "/health", timeout=10):
            pass  # accepted after it: so it was, too
        begin = time.monotonic()
        status, errors = process.end(signal.SIGTERM)
        assert status == 0
        assert time.monotonic() - begin < 8
        assert errors.splitlines()[-1].endswith("INFO server stopped")
        for wire in (running, queued):
            received = read_all(wire)
            assert b'"code":"service_unavailable"' in received
            assert b"[DONE]" not in received
        assert read_all(waiting).startswith(b"HTTP/1.1 503 ")


def read_all(wire: socket.socket) -> bytes:
    with wire:
        return b"".join(iter(lambda: wire.recv(65536), b""))


@pytest.mark.contract("OPT-002", "OPT-077")
def test_a_port_that_is_taken_is_one_line(golden_chat_artifact: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        command = [sys.executable, "-m", "ninfer", "serve", str(golden_chat_artifact), "--port", port]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr == f"ninfer: --host 127.0.0.1 --port {port}: Address already in use\n"


def test_a_protocol_that_is_not_there_is_one_line(golden_chat_artifact: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ninfer",
        "serve",
        str(golden_chat_artifact),
        "--port",
        "0",
        "--engine",
        "scripted",
    ]
    options = ["--cache-dir", str(tmp_path), "--protocols", "gopher", "--log-level", "error"]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("ninfer: no protocol gopher is installed; there are: ")


@pytest.mark.contract("LIFE-007")
@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 0),
        pytest.param(signal.SIGHUP, 0, marks=pytest.mark.contract("LIFE-013")),  # the console's window is closed
    ],
)
def test_one_signal_ends_the_start(
    golden_chat_artifact: Path, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    command = [sys.executable, "-m", "ninfer", "serve", str(golden_chat_artifact), "--port", "0"]
    options = ["--cache-dir", str(tmp_path), "--max-context", "256"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=environment) as child:
        try:
            assert child.stderr is not None
            url = ""
            for line in child.stderr:
                if found := STARTING.search(line):
                    url = found[1]
                if "preparing the device: prefill" in line:
                    break
            for path, body in (("/health", {"status": "starting"}), ("/v1/models", None)):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(url + path, timeout=20)
                assert refused.value.code == 503
                said = json.load(refused.value)
                assert said == body if body else said["error"]["code"] == "service_unavailable"
            begin = time.monotonic()
            child.send_signal(number)
            _, errors = child.communicate(timeout=20)
        finally:
            child.kill()
    assert (child.returncode, errors.splitlines()[-1][24:]) == (status, "INFO server stopped")
    assert time.monotonic() - begin < 5
