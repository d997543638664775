"""The official JavaScript clients over the whole house.

They run where Node.js 22 or newer is at hand (`node` on the path, or NINFER_NODE) and NINFER_NODE_CLIENTS names a
folder in which `npm install openai @anthropic-ai/sdk` was run; elsewhere they are skipped.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.house import in_thread, scripted_server

SCRIPTS = Path(__file__).parent / "js"
PACKAGES = ("openai", "@anthropic-ai/sdk")
LEAST_NODE = 22
NODE_S = 90


@pytest.fixture(scope="module")
def node() -> str:
    """The Node.js to run; a test is skipped where there is none that will do."""
    found = os.environ.get("NINFER_NODE") or shutil.which("node")
    if found is None:
        pytest.skip("needs Node.js: `node` on the path, or NINFER_NODE")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True, timeout=NODE_S).stdout
    major = re.match(r"v(\d+)", version)
    if major is None or int(major[1]) < LEAST_NODE:
        pytest.skip(f"needs Node.js {LEAST_NODE} or newer, {found} is {version.strip()}; NINFER_NODE names another one")
    return found


@pytest.fixture(scope="module")
def packages() -> Path:
    """The folder with the clients; a test is skipped where there is none."""
    folder = os.environ.get("NINFER_NODE_CLIENTS")
    if folder is None or not all((Path(folder) / "node_modules" / name).is_dir() for name in PACKAGES):
        pytest.skip(f"needs NINFER_NODE_CLIENTS, a folder where `npm install {' '.join(PACKAGES)}` was run")
    return Path(folder)


@pytest.mark.parametrize("script", ["openai.mjs", "anthropic.mjs"])
async def test_a_client(wide_artifact: Path, node: str, packages: Path, script: str) -> None:
    async with scripted_server(wide_artifact) as server:
        environment = {
            **os.environ,
            "BASE_URL": server.base_url,
            "MODEL": server.model,
            "NODE_CLIENTS": str(packages),
        }

        def run() -> subprocess.CompletedProcess[str]:
            command = [node, str(SCRIPTS / script)]
            return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=NODE_S, check=False)

        ended = await in_thread(run)
        await server.idle()
    assert ended.returncode == 0, ended.stderr
    results = json.loads(ended.stdout)
    assert results == dict.fromkeys(results, True)
