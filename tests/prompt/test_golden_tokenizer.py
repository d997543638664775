"""The golden model's own tokenizer and template: what quoted control tokens become there."""

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import GenerationRequest, Reasoning, Role, Text, Turn
from ninfer.prompt import ChatTemplate, PromptBuilder, Tokenizer

FOLDER = Path(__file__).parents[1] / "data/golden/dense_text"
FILES = {name: (FOLDER / f"{name}.json").read_bytes() for name in ("tokenizer_config", "generation_config")}
GOLDEN = Tokenizer.from_files((FOLDER / "tokenizer.json").read_bytes(), **FILES)
REFERENCE = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
BUILDER = PromptBuilder(GOLDEN, ChatTemplate((FOLDER / "chat_template.jinja").read_text()))
CONTROLS = frozenset(GOLDEN.control_tokens.values())
ROLES: tuple[Role, ...] = ("system", "developer", "user", "assistant", "tool", "user")


def prompt(text: str) -> tuple[int, ...]:
    turns = [Turn(role=role, parts=(Reasoning(text),) * (role == "assistant") + (Text(text),)) for role in ROLES]
    return BUILDER.build(GenerationRequest(turns=tuple(turns))).tokens


def controls(tokens: tuple[int, ...]) -> list[int]:
    return [token for token in tokens if token in CONTROLS]


BARE = controls(prompt("x"))


@pytest.mark.contract("TMPL-011")
@pytest.mark.parametrize("control", GOLDEN.control_tokens)
def test_quoted_control_tokens_are_text(control: str) -> None:
    """VIS-09, VIS-10: in every role that a caller can speak in."""
    tokens = prompt(control)
    assert controls(tokens) == BARE
    assert GOLDEN.decode(tokens).count(control) >= len(ROLES) + 1


@given(st.lists(st.one_of(st.text(max_size=5), st.sampled_from(sorted(GOLDEN.control_tokens)))).map("".join))
def test_encode_agrees_with_the_library(text: str) -> None:
    assert list(GOLDEN.encode(text)) == REFERENCE.encode(text, add_special_tokens=False).ids
    assert controls(prompt("x" + text)) == BARE  # an empty reasoning has no think block here
