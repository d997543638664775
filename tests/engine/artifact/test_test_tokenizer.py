"""The test tokenizer: every golden id can be written as text, and comes back as itself."""

import json
from pathlib import Path

import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.data.make_test_tokenizer import VOCABULARY_TOKENS, build
from tests.fixtures import GOLDEN, GoldenPrompt

TOKENIZER = tokenizers.Tokenizer.from_file(str(GOLDEN / "tokenizer.json"))


def test_golden_prompts_as_text_give_the_golden_ids(golden_prompts: tuple[GoldenPrompt, ...]) -> None:
    for prompt in golden_prompts:
        assert tuple(TOKENIZER.encode(prompt.text).ids) == prompt.tokens
        assert tuple(TOKENIZER.encode(prompt.greedy_text).ids) == prompt.greedy
        assert TOKENIZER.decode(list(prompt.greedy)) == prompt.greedy_text
        assert len(prompt.text) == len(prompt.tokens), "one character per golden id"
        assert prompt.text == prompt.text.strip(), "nothing that a trimming template would take"


def test_the_files_are_what_the_script_makes(golden_folder: Path) -> None:
    prompts = json.loads((golden_folder / "inputs.json").read_text())["prompts"]
    for name, value in build(prompts).items():
        assert json.loads((golden_folder / name).read_text()) == value


def test_the_vocabulary_is_the_models() -> None:
    assert TOKENIZER.get_vocab_size() == VOCABULARY_TOKENS
    assert sorted(TOKENIZER.get_vocab().values()) == list(range(VOCABULARY_TOKENS))


@given(st.text())
def test_every_text_has_a_tokenization(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text
