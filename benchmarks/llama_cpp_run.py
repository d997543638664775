"""llama.cpp on a GGUF file: tokens a second of decoding and of reading the prompt, as JSON lines, one a run.

    VENV/bin/python benchmarks/llama_cpp_run.py FILE.gguf [--threads 2] [--runs 5] [--tokens 128] [--prompt 256]

Runs in an environment of its own that has `xllamacpp`, whose wheels contain a compiled llama.cpp; uses nothing of ours.
The times are llama.cpp's own.
"""

import argparse
import json
from importlib.metadata import version

import xllamacpp  # type: ignore[import-not-found]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=256)
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = options.file
    params.n_ctx, params.n_parallel, params.warmup = 2048, 1, True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    server = xllamacpp.Server(params)
    for run in range(options.runs + 1):
        words = [1000 + (7919 * (run + 1) + 31 * index) % 20_000 for index in range(options.prompt)]
        asked = {
            "prompt": words, "n_predict": options.tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False
        }  # fmt: skip
        answer = server.handle_completions(asked)
        timings = (answer if isinstance(answer, dict) else json.loads(answer))["timings"]
        if run:  # the first one warms up
            line = {"decode_per_s": timings["predicted_per_second"], "prompt_per_s": timings["prompt_per_second"]}
            print(json.dumps(line | {"package": f"xllamacpp {version('xllamacpp')}"}), flush=True)


if __name__ == "__main__":
    main()
