"""A fresh environment that holds what pip puts there: the server, the example and its tests, the client."""

import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from tests.examples.installing import EXAMPLES

READY = re.compile(r" INFO ready: (http://\S+) serves (.+)$")
TALK = """
import sys
import ollama

def get_weather(city: str, days: int) -> str:
    return f"{days} days of rain in {city}"

client = ollama.Client(host=sys.argv[1], trust_env=False)
model = client.list().models[0].model
asked = [{"role": "user", "content": 'Weather? [[call:get_weather {"city":"Paris","days":2}]]'}]
message = client.chat(model, asked, tools=[get_weather]).message
(call,) = message.tool_calls
result = {"role": "tool", "tool_name": call.function.name, "content": get_weather(**call.function.arguments)}
pieces = list(client.chat(model, [*asked, message, result], tools=[get_weather], stream=True))
print("".join(piece.message.content for piece in pieces).strip())
print(pieces[-1].done_reason, len(pieces) > 2)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command that has to succeed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the server, the example and what its tests need."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    example = f"{EXAMPLES / 'ninfer_ollama'}[test]"
    run(python, "-m", "pip", "install", "--quiet", str(EXAMPLES.parent), example, cwd=folder)
    return python


@pytest.mark.slow
def test_the_examples_tests_pass_with_the_installed_kit(python: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "ninfer_ollama" / "tests", tmp_path / "tests")
    shutil.copy(EXAMPLES / "ninfer_ollama" / "pyproject.toml", tmp_path)
    said = run(python, "-P", "-m", "pytest", "-q", cwd=tmp_path)
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None
    assert int(passed[1]) > 70
    assert "skipped" not in said


@pytest.mark.slow
def test_the_real_client_calls_a_tool_and_streams(python: Path, tmp_path: Path) -> None:
    (tmp_path / "talk.py").write_text(TALK)
    command = [str(python), "-P", "-m", "ninfer", "serve", "--engine", "scripted", "--port", "0"]
    command += ["--cache-dir", str(tmp_path / "cache")]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            ready = next(found for line in server.stderr if (found := READY.search(line)))
            assert run(python, "talk.py", ready[1], cwd=tmp_path) == "Tool said: 2 days of rain in Paris\nstop True\n"
        finally:
            server.terminate()
