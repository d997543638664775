"""`serve` on the GPU with random weights: how soon it is ready, a chat through the `openai` client, no compiling later.

    python -m benchmarks.gpu_serve FOLDER [--config 27b] [--recipe q4] [--kv-dtype int8] [--starts 2] [--tokens 128]
        [--json FILE] [-- OPTIONS OF SERVE]

FOLDER gets the artifact, unless it is there, and the compile cache; keep it on a local disk. The first start fills the
cache, the last one is judged: ready within 60 s, and nothing is traced or compiled after that. Status 1 otherwise.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
from openai import OpenAI

from ninfer.cli.bench_run import model_shape
from ninfer.engine.model.config import CONV_TAPS, TextConfig
from tools.random_artifact import write_random_artifact

READY_WITHIN_S = 60.0
START_LIMIT_S = 500.0
PROMPT = "Write a long story about a small boat and the people who sail it. " * 12
PHASE = " INFO "
"""Marks our own lines, which tell how far a start is; jax warns of what it compiles."""
COMPILING = re.compile(r"Finished (tracing|jaxpr to MLIR|XLA compilation)")
"""What jax logs about work of its own, with JAX_LOG_COMPILES."""


@attrs.define
class Server:
    """A started process and what it says."""

    process: "subprocess.Popen[str]"
    begin_s: float
    lines: list[str] = attrs.field(factory=list)
    url: str = ""
    ready_s: float = 0.0
    phases: list[tuple[float, str]] = attrs.field(factory=list)
    """When, since the start, which of our own lines came until it was ready."""
    lines_at_ready: int = 0
    _ready: threading.Event = attrs.field(factory=threading.Event)

    def listen(self) -> None:
        """Take every line until the process ends; nobody may let its pipe fill up."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            now_s = time.perf_counter() - self.begin_s
            if not self.url and PHASE in line:
                self.phases.append((now_s, line.rpartition(PHASE)[2].strip()))
            if "ready: " in line and not self.url:
                self.ready_s = now_s
                self.url = line.partition("ready: ")[2].split(" ")[0].strip()
                self.lines_at_ready = len(self.lines)
                self._ready.set()
        self._ready.set()

    def wait(self) -> None:
        """Until it is ready.

        Raises:
            SystemExit: it ended, or took too long.
        """
        if not self._ready.wait(START_LIMIT_S) or not self.url:
            raise SystemExit("the server did not become ready:\n" + "\n".join(self.lines[-40:]))

    def compiled_since_ready(self) -> list[str]:
        """What jax has traced or compiled since.

        Raises:
            SystemExit: jax has logged nothing before either, so that nothing can be said.
        """
        if not any(COMPILING.search(line) for line in self.lines[: self.lines_at_ready]):
            raise SystemExit("jax logs nothing of what it compiles")
        return [line for line in self.lines[self.lines_at_ready :] if COMPILING.search(line)]


@contextmanager
def served(artifact: Path, cache: Path, options: Sequence[str]) -> Iterator[Server]:
    """`ninfer serve`, ready; ended with the block."""
    command = [sys.executable, "-m", "ninfer", "serve", str(artifact), "--port", "0", "--cache-dir", str(cache)]
    environment = {**os.environ, "JAX_LOG_COMPILES": "1"}
    begin_s = time.perf_counter()
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=environment)
    server = Server(process=process, begin_s=begin_s)
    listener = threading.Thread(target=server.listen, daemon=True)
    listener.start()
    try:
        server.wait()
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        listener.join(timeout=10)


@attrs.frozen(kw_only=True)
class Chat:
    """One streamed answer."""

    prompt_tokens: int
    new_tokens: int
    first_s: float
    """Until the first piece of the answer."""
    tokens_per_s: float
    """After it."""
    text: str


def chat(url: str, tokens: int) -> Chat:
    """Ask once, through the library that clients use."""
    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    begin_s = time.perf_counter()
    times, parts, usage = [], [], None
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": PROMPT}],
        max_tokens=tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        if chunk.choices:
            times.append(time.perf_counter())
            delta = chunk.choices[0].delta
            parts.append(delta.content or getattr(delta, "reasoning_content", None) or "")
        usage = chunk.usage or usage
    assert usage is not None
    spent_s = times[-1] - times[0]
    return Chat(
        prompt_tokens=usage.prompt_tokens,
        new_tokens=usage.completion_tokens,
        first_s=times[0] - begin_s,
        tokens_per_s=(usage.completion_tokens - 1) / spent_s if spent_s else 0.0,
        text="".join(parts),
    )


def raw_config(config: TextConfig) -> dict[str, object]:
    """The shape as a Hugging Face config.json has it."""
    fields = attrs.asdict(config, filter=lambda field, _: field.name not in ("mrope_section", "rope_yarn_factor"))
    layers, factor, theta = (fields.pop(name) for name in ("mtp_layers", "partial_rotary_factor", "rope_theta"))
    return {
        **fields,
        "model_type": "qwen3_5_text",
        "num_hidden_layers": config.num_layers,
        "linear_conv_kernel_dim": CONV_TAPS,
        "mtp_num_hidden_layers": layers,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": theta,
            "partial_rotary_factor": factor,
            "mrope_section": list(config.mrope_section),
            "mrope_interleaved": True,
        },
    }


def make_artifact(folder: Path, name: str, recipe: str) -> Path:
    """The artifact in `folder`; written if it is not there."""
    entry = folder / f"{Path(name).stem}-{recipe}.ninfer"
    if not entry.exists():
        config_file = folder / f"{Path(name).stem}.json"
        config_file.write_text(json.dumps(raw_config(model_shape(name))), encoding="utf-8")
        write_random_artifact(config_file, entry, recipe=recipe)
    return entry


def main(arguments: Sequence[str]) -> None:
    """Start, ask, judge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_serve")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config", default="27b")
    parser.add_argument("--recipe", default="q4")
    parser.add_argument("--kv-dtype", default="int8")
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--json", type=Path, metavar="FILE")
    own = list(arguments)
    more = own[own.index("--") + 1 :] if "--" in own else []
    options = parser.parse_args(own[: len(own) - len(more) - 1] if "--" in own else own)
    options.folder.mkdir(parents=True, exist_ok=True)
    begin_s = time.perf_counter()
    artifact = make_artifact(options.folder, options.config, options.recipe)
    size = sum(file.stat().st_size for file in options.folder.glob(f"{artifact.stem}*"))
    print(f"artifact: {size / 1e9:.2f} GB, made in {time.perf_counter() - begin_s:.1f} s", flush=True)
    ready, late, answers, phases = [], [], [], []
    for _ in range(options.starts):
        with served(artifact, options.folder / "cache", ["--kv-dtype", options.kv_dtype, *more]) as server:
            print(f"ready after {server.ready_s:.1f} s", flush=True)
            for at_s, line in server.phases:
                print(f"  {at_s:5.1f} s {line}", flush=True)
            ready.append(server.ready_s)
            phases.append(server.phases)
            for _ in range(2):  # the second one finds every page of the program warm
                answers.append(chat(server.url, options.tokens))
                print(_line(answers[-1]), flush=True)
            late = server.compiled_since_ready()
    for line in late:
        print(f"after readiness: {line}")
    faults = [f"{len(late)} programs traced or compiled after readiness"] if late else []
    if ready[-1] >= READY_WITHIN_S:
        faults.append(f"the last start took {ready[-1]:.1f} s, {READY_WITHIN_S:.0f} s are allowed")
    print("faults: " + ("; ".join(faults) or "none"))
    if options.json is not None:
        found = {
            "ready_s": ready,
            "phases": phases,
            "chats": [attrs.asdict(answer) for answer in answers],
            "faults": faults,
        }
        options.json.write_text(json.dumps({"artifact_bytes": size, **found}, indent=1) + "\n", encoding="utf-8")
    sys.exit(bool(faults))


def _line(answer: Chat) -> str:
    return (
        f"chat: prompt of {answer.prompt_tokens} tokens, first piece after {answer.first_s * 1e3:.0f} ms, then "
        f"{answer.new_tokens} tokens at {answer.tokens_per_s:.1f} tokens/s: {answer.text[:60]!r}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
