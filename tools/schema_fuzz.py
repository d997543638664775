"""Requests made from other people's OpenAPI documents, against a running server: nothing may be answered with a 5xx.

    pip install schemathesis llm-comply           # in an environment of their own; llm-comply carries the documents
    python tools/schema_fuzz.py --url http://127.0.0.1:8080 --model MODEL [--examples 300] [--seed 1]

The documents are narrowed to what is served here, and the model's name is fixed where one is named, so that requests
get past it. One line a document, exit status 1 where a document found something. Not part of the test suite: the
packages are heavy.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SERVED: Mapping[str, tuple[str, Sequence[str]]] = {
    # document -> where its paths begin on our server, and which of them are served
    "openai_chat": ("/v1", ("/chat/completions", "/models", "/models/{model}")),
    "openresponses": ("/v1", ("/responses", "/responses/compact")),
    "anthropic": ("", ("/v1/messages", "/v1/messages/count_tokens", "/v1/models", "/v1/models/{model_id}")),
}
OPENAI_RESPONSES = (
    "/responses",
    "/responses/{response_id}",
    "/responses/{response_id}/input_items",
)
METHODS = ("get", "post", "delete")
NOT_SERVED = {("/chat/completions", "get"), ("/models/{model}", "delete")}


def document(name: str, model: str) -> tuple[str, dict[str, Any]]:
    """Where its paths begin, and the document, narrowed."""
    found = importlib.util.find_spec("llm_comply")
    if found is None or found.origin is None:
        raise SystemExit("llm-comply is not installed here")
    text = (Path(found.origin).parent / "specs" / f"{name}.json").read_text(encoding="utf-8")
    spec: dict[str, Any] = json.loads(text)
    prefix, paths = SERVED[name]
    wanted = (*paths, *OPENAI_RESPONSES) if name == "openai_chat" else paths
    spec["paths"] = {
        path: {
            method: operation
            for method, operation in spec["paths"][path].items()
            if method in METHODS and (path, method) not in NOT_SERVED
        }
        for path in wanted
        if path in spec["paths"]
    }
    for operations in spec["paths"].values():
        for operation in operations.values():
            _only_json(operation)
    for schema in spec["components"]["schemas"].values():
        properties = schema.get("properties")
        if isinstance(properties, dict) and "model" in properties:
            properties["model"] = {"type": "string", "enum": [model]}
    return prefix, spec


def _only_json(operation: dict[str, Any]) -> None:
    """Leave out body types that no JSON API of ours reads."""
    content = operation.get("requestBody", {}).get("content")
    if content is not None:
        operation["requestBody"]["content"] = {"application/json": content["application/json"]}


def fuzz(name: str, url: str, model: str, examples: int, seed: int) -> int:
    """Run one document; the exit status of schemathesis."""
    prefix, spec = document(name, model)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.json"
        file.write_text(json.dumps(spec), encoding="utf-8")
        command = [
            str(Path(sysconfig.get_path("scripts")) / "schemathesis"), "run", str(file),
            "--url", f"{url}{prefix}", "--checks", "not_a_server_error", "--seed", str(seed),
            "--max-examples", str(examples), "--phases", "examples,coverage,fuzzing",
            "--request-timeout", "60", "--suppress-health-check", "all", "--warnings", "off",
            "--header", "x-api-key: local",
        ]  # fmt: skip
        ended = subprocess.run(command, cwd=folder, check=False)
    print(f"{name}: {'nothing found' if ended.returncode == 0 else f'exit status {ended.returncode}'}", flush=True)
    return ended.returncode


def main(arguments: Sequence[str]) -> int:
    """Run all documents, or those that are named."""
    parser = argparse.ArgumentParser(description="Fuzz a running server by other people's OpenAPI documents.")
    parser.add_argument("documents", nargs="*", default=list(SERVED))
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--model", required=True)
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    ends = [fuzz(name, options.url, options.model, options.examples, options.seed) for name in options.documents]
    return 1 if any(ends) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
