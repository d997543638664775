"""How long a stranger waits: `make serve` from an empty checkout until /health says that it is ready, then once more.

    python benchmarks/first_start.py [--runs 3] [--commit HEAD] [--python python3]

Each run clones this repository, starts with an empty cache folder of NInfer's and the cache of pip, and takes
the time of a cold start and of a warm one after it. Prints the lines of both with their seconds; measure on a machine
that does nothing else.
"""

import argparse
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
POLL_S = 0.05
LOST_S = 600


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def health(port: int) -> int | None:
    """The status of /health, or None where nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=POLL_S * 20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def seconds_to_ready(checkout: Path, python: str, cache: Path) -> tuple[float | None, float]:
    """Seconds until anything answered, and until the server was ready.

    Raises:
        RuntimeError: it ended, or was not ready in time.
    """
    port = free_port()
    pip_cache = subprocess.run([python, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False)
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PIP_CACHE_DIR": pip_cache.stdout.strip()}
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "NINFER_CACHE_DIR"):
        environment.pop(name, None)
    command = ["make", "serve", f"PYTHON={python}", f"SERVE_ARGS=--port {port}"]
    begin_s = time.monotonic()
    child = subprocess.Popen(
        command,
        cwd=checkout,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )

    def echo() -> None:
        for line in child.stdout or ():
            print(f"  {time.monotonic() - begin_s:6.1f}  {line.rstrip()}", flush=True)

    reader = threading.Thread(target=echo)
    reader.start()
    answered_s = None
    try:
        while (status := health(port)) != 200:
            waited_s = time.monotonic() - begin_s
            if status is not None and answered_s is None:
                answered_s = waited_s
            if child.poll() is not None or waited_s > LOST_S:
                raise RuntimeError(f"{' '.join(command)}: status {child.returncode} after {waited_s:.0f} s")
            time.sleep(POLL_S)
        return answered_s, time.monotonic() - begin_s
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
        child.wait()
        reader.join()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--python", default="python3")
    given = parser.parse_args()
    results = []
    for _ in range(given.runs):
        with tempfile.TemporaryDirectory() as folder:
            checkout, cache = Path(folder) / "checkout", Path(folder) / "cache"
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
            subprocess.run(["git", "checkout", "--quiet", given.commit], cwd=checkout, check=True)
            for kind in ("cold", "warm"):
                answered_s, ready_s = seconds_to_ready(checkout, given.python, cache)
                first = "never before" if answered_s is None else f"from {answered_s:.1f} s on"
                results.append(f"{kind}: ready after {ready_s:.1f} s; /health answered 503 {first}")
    print(f"load of the machine now: {os.getloadavg()[0]:.1f}")
    print("\n".join(results))


if __name__ == "__main__":
    main()
