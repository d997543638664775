"""Cases from the field, from the wire body to the tokens of the prompt. The ids are those of the bug log."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ninfer.conversation import InvalidRequest
from ninfer.prompt import ChatTemplate, PreparedPrompt, PromptBuilder
from ninfer.prompt.maintained import maintained_variant
from ninfer.protocols.openai_chat.decode import decode
from tests.prompt import official, tiny

TINY = tiny.tokenizer()
OFFICIAL = ChatTemplate(official.SOURCE)
MAINTAINED = maintained_variant(OFFICIAL)
assert MAINTAINED is not None
HI = {"role": "user", "content": "hi"}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "r"}

both = pytest.mark.parametrize("template", [OFFICIAL, MAINTAINED], ids=["official", "maintained"])


def prepare(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], **members: Any) -> PreparedPrompt:
    call = decode({"model": "m", "messages": list(messages), **members})
    return PromptBuilder(TINY, template).build(call.request)


def text(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], **members: Any) -> str:
    return TINY.decode(prepare(template, messages, **members).tokens)


def caller(arguments: object, **members: object) -> dict[str, object]:
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}], **members}


@both
def test_tpl_01_two_leading_system_messages_are_one_turn(template: ChatTemplate) -> None:
    prompt = text(template, [{"role": "system", "content": "A"}, {"role": "system", "content": "B"}, HI])
    assert prompt.startswith("<|im_start|>system\nA\n\nB<|im_end|>\n<|im_start|>user\nhi")


@both
def test_tpl_02_a_developer_is_a_system(template: ChatTemplate) -> None:
    messages = [{"role": "developer", "content": "be brief"}, HI]
    assert text(template, messages) == text(template, [{**messages[0], "role": "system"}, HI])


@both
def test_tpl_03_arguments_are_a_mapping(template: ChatTemplate) -> None:
    prompt = text(template, [HI, caller(json.dumps({"path": "a.txt", "n": 2})), RESULT])
    assert "<parameter=path>\na.txt\n</parameter>\n<parameter=n>\n2\n</parameter>\n" in prompt


@both
def test_tpl_04_arguments_that_are_none(template: ChatTemplate) -> None:
    assert text(template, [HI, caller(""), RESULT]) == text(template, [HI, caller("{}"), RESULT])
    for arguments in ('"now"', "[1,2]", "1"):
        with pytest.raises(InvalidRequest) as caught:
            text(template, [HI, caller(arguments), RESULT])
        assert caught.value.param is not None
        assert caught.value.param.startswith("messages[1]")


@both
def test_tpl_05_06_08_null_empty_and_missing_content_are_one_prompt(template: ChatTemplate) -> None:
    turns = [caller("{}", content=None), caller("{}", content=""), caller("{}")]
    prompts = {prepare(template, [HI, turn, RESULT]).tokens for turn in turns}
    assert len(prompts) == 1
    assert "None" not in TINY.decode(prompts.pop())


def test_tpl_07_without_a_user() -> None:
    messages = [{"role": "system", "content": "x"}, caller("{}"), RESULT]
    assert text(MAINTAINED, messages).count("<|im_start|>") == 4
    with pytest.raises(InvalidRequest, match="needs a user") as caught:
        text(OFFICIAL, messages)
    assert caught.value.code == "invalid_prompt"


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("stream", [True, False])
@both
def test_rsn_02_the_mode_decides_and_streaming_does_not(template: ChatTemplate, enabled: bool, stream: bool) -> None:
    prompt = prepare(template, [HI], chat_template_kwargs={"enable_thinking": enabled}, stream=stream)
    assert (prompt.opens_in_reasoning, prompt.thinking) == (enabled, enabled)


def test_rsn_01_a_template_that_closes_the_block_by_itself() -> None:
    prompt = prepare(ChatTemplate("x<think>\n\n</think>\n\n"), [HI], chat_template_kwargs={})
    assert not prompt.opens_in_reasoning
    assert not prompt.thinking


@both
def test_rsn_04_think_blocks_of_earlier_turns(template: ChatTemplate) -> None:
    turns = [HI, {"role": "assistant", "content": "a", "reasoning_content": "r"}] * 3
    prompt = prepare(template, [*turns, HI], preserve_thinking=True)
    assert TINY.decode(prompt.tokens).count("</think>") == 3
    assert prompt.opens_in_reasoning


@pytest.mark.contract("TMPL-008")
def test_text_that_the_model_has_cut_otherwise_is_no_error() -> None:
    """The model wrote "the" as three tokens; a replay has one, and matches only up to there."""
    generated = [TINY.encode_plain(letter)[0] for letter in "the"]
    replay = prepare(MAINTAINED, [HI, {"role": "assistant", "content": TINY.decode(tuple(generated))}, HI])
    assert TINY.encode_plain("the") != tuple(generated)
    assert set(TINY.encode_plain("the")) <= set(replay.tokens)
