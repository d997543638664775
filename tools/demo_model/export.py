"""From parameters to a Hugging Face folder, and from there with `ninfer convert` to what the package carries.

`python -m tools.demo_model.export --start CHECKPOINT --tokenizer FOLDER --out FOLDER --artifact FILE`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ninfer.engine.artifact.conversion import convert
from ninfer.engine.artifact.recipe import BUILT_IN
from ninfer.engine.model.weights import named_tensors
from tools.demo_model import checkpoint, geometry, model

HERE = Path(__file__).parent
NAME = "ninfer-demo"


def hf_name(name: str) -> str:
    """A logical name as a text-only checkpoint spells it."""
    return name if name.startswith("mtp.") else f"model.{name}"


def write_folder(params: Any, tokenizer_folder: Path, out: Path) -> None:
    """Write config, weights in float32, tokenizer, template and generation settings."""
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    end, pad = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    config = geometry.raw_config(eos_token_id=end, pad_token_id=pad)
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    # Greedy unless asked otherwise: a model of this size copies better than it chooses.
    generation = {"eos_token_id": [end, pad], "pad_token_id": pad, "do_sample": False, "temperature": 0.0}
    (out / "generation_config.json").write_text(json.dumps(generation, indent=1), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer_folder / name, out / name)
    shutil.copyfile(HERE / "chat_template.jinja", out / "chat_template.jinja")
    tensors = {
        hf_name(name): np.ascontiguousarray(value, np.float32)
        for name, value in named_tensors(model.to_weights(params))
    }
    write_safetensors(tensors, out / "model.safetensors")


def write_safetensors(tensors: dict[str, np.ndarray], path: Path) -> None:
    """float32 tensors in the safetensors format: length of the header (u64), the header as JSON, the data."""
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            file.write(value.tobytes())


def main() -> None:
    """Export and convert."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", type=Path, required=True)
    parser.add_argument("--name", default="model")
    parser.add_argument("--tokenizer", type=Path, default=HERE / "work/hf")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--artifact", type=Path)
    args = parser.parse_args()
    params = checkpoint.load_small(model.fresh(geometry.full(), 0), args.start, args.name)
    write_folder(params, args.tokenizer, args.out)
    if args.artifact:
        args.artifact.parent.mkdir(parents=True, exist_ok=True)
        done = convert(args.out, args.artifact, name=NAME, recipe=BUILT_IN["int8_row"], replace=True)
        print(*done.notes, sep="\n")
        print(f"{args.artifact}: {args.artifact.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
