"""What a stranger gets: the wheel in a fresh environment of the Python that runs this, a server, and one answer.

    python3.13 tools/fresh_install.py

Takes the newest versions that the declared bounds allow, unlike the environment that tests run in. Standard library
alone. Status 0: the demonstration model was served and has answered.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
READY = re.compile(r" INFO ready: (http://\S+) serves (\S+)$")
ASKED = "What is 2 + 3?"
SUM = "5"
VERSIONS = ("jax", "quart", "quart-trio", "hypercorn", "h11", "werkzeug", "trio")


def run(*command: object) -> str:
    """Standard output of a command that has to succeed."""
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def install(folder: Path) -> Path:
    """An environment with the wheel of this checkout, and nothing of the checkout; its Python."""
    python = folder / "venv/bin/python"
    run(sys.executable, "-m", "venv", folder / "venv")
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("ninfer-*.whl")
    run(python, "-m", "pip", "install", "--quiet", wheel)
    return python


def ask(url: str, model: str) -> str:
    """What the server answers."""
    body = {"model": model, "messages": [{"role": "user", "content": ASKED}], "temperature": 0}
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: Any = json.load(answer)
    said: str = found["choices"][0]["message"]["content"]
    return said


def serve(python: Path, folder: Path) -> str:
    """Start a server with nothing named, ask once, end it.

    Raises:
        SystemExit: it never was ready, or did not end as it should.
    """
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("PYTHONPATH", None)
    command = [str(python), "-m", "ninfer", "serve", "--port", "0", "--cache-dir", str(folder / "cache")]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as child:
        try:
            seen = []
            for line in child.stderr or ():
                seen.append(line)
                if found := READY.search(line):
                    said = ask(found[1], found[2])
                    break
            else:
                raise SystemExit("".join(seen))
            child.terminate()
            child.communicate(timeout=60)
        finally:
            child.kill()
    if child.returncode:
        raise SystemExit(f"the server ended with status {child.returncode}")
    return said


def main() -> None:
    """Install, serve, ask, and say which versions did it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = install(folder)
        said = serve(python, folder)
        asked = (
            f"from importlib.metadata import version; print(*(f'{{n}} {{version(n)}}' for n in {VERSIONS}), sep=', ')"
        )
        versions = run(python, "-c", asked).strip()
    if SUM not in said:
        raise SystemExit(f"{ASKED} was answered by {said!r}, without {SUM}")
    print(f"Python {sys.version.split()[0]} serves and answers with {versions}")


if __name__ == "__main__":
    main()
