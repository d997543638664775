"""The same model behind HTTP, as a process of its own: how soon it is ready, and the tokens a second of one stream.

The compile cache is a folder that the caller names; the first start may have to fill it, and is not counted.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import httpx

MESSAGE = {"role": "user", "content": "Write a long story about a small boat and the people who sail it."}


@attrs.frozen
class Served:
    """A running server."""

    url: str
    ready_s: float


@contextmanager
def served(artifact: Path, cache: Path, *, context_tokens: int) -> Iterator[Served]:
    """`ninfer serve` with its defaults but for the address and the context; the block begins when it is ready."""
    begin_s = time.perf_counter()
    command = [sys.executable, "-m", "ninfer", "serve", str(artifact), "--port", "0", "--cache-dir", str(cache)]
    process = subprocess.Popen(
        [*command, "--max-context", str(context_tokens)], stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "ready: " in line:
                url = line.partition("ready: ")[2].split(" ")[0]
                break
        else:
            raise SystemExit(f"the server ended with {process.wait()} before it was ready")
        ready_s = time.perf_counter() - begin_s
        # A record for each request follows, and a full pipe would stop the server.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield Served(url, ready_s)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def stream_rate(url: str, new_tokens: int) -> float:
    """Tokens a second between the first and the last text of one streamed answer, by the usage that it states."""
    model = httpx.get(f"{url}/v1/models").json()["data"][0]["id"]
    body = {
        "model": model,
        "messages": [MESSAGE], "stream": True, "temperature": 0, "max_tokens": new_tokens,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    times: list[float] = []
    tokens = 0
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=600) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if '"content":"' in line.replace(" ", "") or '"reasoning_content":"' in line.replace(" ", ""):
                times.append(time.perf_counter())
            if '"completion_tokens":' in line.replace(" ", ""):
                tokens = int(line.replace(" ", "").partition('"completion_tokens":')[2].split(",")[0].split("}")[0])
    return (tokens - 1) / (times[-1] - times[0])
