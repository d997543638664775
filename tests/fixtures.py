"""Fixtures made of the golden model: its folder, and artifacts converted from it once a session.

`golden_folder` is a Hugging Face folder with a tokenizer and the `chat` template. The artifact `golden_artifact`
carries the `raw` template instead: the prompt of a chat request is then the text of its last user message, so that the
golden ids can be sent as text (`golden_prompts`).
"""

import json
import shutil
from pathlib import Path

import attrs
import pytest

from ninfer.engine.artifact import convert
from tests.data.make_test_tokenizer import byte_alphabet

GOLDEN = Path(__file__).parent / "data" / "golden" / "dense_text"


@attrs.frozen
class GoldenPrompt:
    """A prompt of inputs.json: ids, the text that tokenizes to them, and the greedy continuation."""

    tokens: tuple[int, ...]
    greedy: tuple[int, ...]
    text: str
    greedy_text: str


@pytest.fixture(scope="session")
def golden_folder() -> Path:
    """The golden model as a Hugging Face folder."""
    return GOLDEN


@pytest.fixture(scope="session")
def golden_prompts() -> tuple[GoldenPrompt, ...]:
    """The golden prompts, ids and text."""
    tokenizer = json.loads((GOLDEN / "tokenizer.json").read_text())
    # Each golden id stands for one character; the byte-level spelling of a character is undone by its bytes.
    spelled = {token: spelling for spelling, token in tokenizer["model"]["vocab"].items()}
    alphabet = {character: byte for byte, character in byte_alphabet().items()}

    def text(tokens: list[int]) -> str:
        return bytes(alphabet[c] for token in tokens for c in spelled[token]).decode()

    prompts = json.loads((GOLDEN / "inputs.json").read_text())["prompts"]
    return tuple(
        GoldenPrompt(tuple(p["input_ids"]), tuple(p["greedy"]), text(p["input_ids"]), text(p["greedy"]))
        for p in prompts
    )


@pytest.fixture(scope="session")
def golden_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden model as an artifact named `golden`, with the `raw` template."""
    folder = tmp_path_factory.mktemp("golden") / "hf"
    shutil.copytree(GOLDEN, folder)
    shutil.copyfile(GOLDEN / "raw_template.jinja", folder / "chat_template.jinja")
    entry = folder.with_name("golden.ninfer")
    convert(folder, entry, name="golden")
    return entry


@pytest.fixture(scope="session")
def golden_chat_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden model as an artifact named `golden-chat`, with the `chat` template."""
    entry = tmp_path_factory.mktemp("golden-chat") / "golden-chat.ninfer"
    convert(GOLDEN, entry, name="golden-chat")
    return entry
