"""The published tokenizer and templates of the family, from the folder that `--shared` names."""

import lzma
from functools import cache
from pathlib import Path

from ninfer.prompt import ChatTemplate, Tokenizer


@cache
def tokenizer(shared: Path) -> Tokenizer:
    """The tokenizer that Qwen3.5, 3.6 and 3.8 share; loading takes a second."""
    return Tokenizer.from_files(lzma.decompress((shared / "data/tokenizers/qwen3_5_tokenizer.json.xz").read_bytes()))


def template(shared: Path, family: str) -> ChatTemplate:
    """A family's chat template."""
    return ChatTemplate((shared / f"data/templates/{family}.jinja").read_text())
