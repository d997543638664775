"""`python -m ninfer serve` with a protocol of somebody else that is broken: one line that names it, and status 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOUND = """
from ninfer.protocols.openai_errors import openai_error, openai_stream_error
from ninfer.protocols.plugin import Route

class Odd:
    name = "odd"
    request_id_header = "x-request-id"

    def __init__(self, host):
        self.host = host

    def routes(self):
        return [Route("POST", "/odd", self.create)]

    async def create(self, call):
        await call.reply({})

    def error(self, error, request_id):
        return openai_error(error)

    def stream_error(self, error, request_id):
        return openai_stream_error(error)
"""


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ('Route("POST",', '("POST",', "routes()[0] is a tuple instead of a Route"),
        ("return openai_error(error)", "return {}[error]", "error() failed for RequestError: KeyError: "),
        (
            "from ninfer.protocols.plugin import Route",
            "import nothing_such",
            "does not load: ModuleNotFoundError: No module named 'nothing_such' (ninfer_odd.py:3)",
        ),
    ],
)
def test_a_broken_protocol_ends_the_start_with_one_line(
    right: str, wrong: str, line: str, golden_artifact: Path, tmp_path: Path
) -> None:
    about = tmp_path / "ninfer_odd-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ninfer-odd\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[ninfer.protocols]\nodd = ninfer_odd:Odd\n")
    (tmp_path / "ninfer_odd.py").write_text(SOUND.replace(right, wrong))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-m", "ninfer", "serve", str(golden_artifact), "--engine", "scripted", "--port", "0",
         "--log-level", "error", "--cache-dir", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    (said,) = ended.stderr.splitlines()
    assert said.startswith("ninfer: the protocol odd ")
    assert line in said
    assert "the distribution ninfer-odd" in said
