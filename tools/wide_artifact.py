"""An artifact for the scripted engine with room for agents' prompts, which are longer than the golden model's context.

    python -m tools.wide_artifact OUT.ninfer [--tokenizer tokenizer.json[.xz]] [--template FILE.jinja] [--name NAME]
    python -m ninfer serve OUT.ninfer --engine scripted --max-context 262144

It is the golden model with another ceiling and, if given, another vocabulary and template. Its weights fit neither: no
model can be run from it.
"""

import argparse
import json
import lzma
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ninfer.engine.artifact import convert

CONTEXT_TOKENS = 262_144
GOLDEN = Path(__file__).parents[1] / "tests" / "data" / "golden" / "dense_text"


def write_wide_artifact(
    entry: Path, *, name: str = "scripted", tokenizer: Path | None = None, template: Path | None = None
) -> None:
    """Write the artifact `entry`; without a tokenizer or template it has the golden model's."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for file in GOLDEN.iterdir():
            shutil.copyfile(file, folder / file.name)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config["max_position_embeddings"] = CONTEXT_TOKENS
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        if tokenizer is not None:
            stored = tokenizer.read_bytes()
            (folder / "tokenizer.json").write_bytes(lzma.decompress(stored) if tokenizer.suffix == ".xz" else stored)
            (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}', encoding="utf-8")
            (folder / "generation_config.json").unlink()
        if template is not None:
            shutil.copyfile(template, folder / "chat_template.jinja")
        convert(folder, entry, name=name, replace=True)


def main(arguments: Sequence[str]) -> None:
    """Write one artifact."""
    parser = argparse.ArgumentParser(prog="python -m tools.wide_artifact")
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--template", type=Path)
    parser.add_argument("--name", default="scripted")
    options = parser.parse_args(arguments)
    write_wide_artifact(options.out, name=options.name, tokenizer=options.tokenizer, template=options.template)


if __name__ == "__main__":
    main(sys.argv[1:])
