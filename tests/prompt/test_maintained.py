"""The maintained variant: the same text as the official templates, and conversations that those refuse."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ninfer.conversation import GenerationRequest, Reasoning, Role, Text, ThinkingFields, ToolCall, Turn
from ninfer.prompt import ChatTemplate, PromptBuilder
from ninfer.prompt.maintained import maintained_variant
from tests.prompt import official, published, tiny

TINY = tiny.tokenizer()
FAMILIES = ("qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8")
SKIPPED = {
    "image": "media",
    "image_url": "media",
    "history_inline_think": "a think block inside content is quoted text to us",
    "tool_args_empty_string": "arguments are objects in the conversation",
}


def variant(source: str = official.SOURCE) -> ChatTemplate:
    found = maintained_variant(ChatTemplate(source))
    assert found is not None
    return found


def turn(role: Role, *parts: str | Reasoning | ToolCall, call_id: str | None = None) -> Turn:
    return Turn(role=role, parts=tuple(Text(p) if isinstance(p, str) else p for p in parts), call_id=call_id)


def rendered(*turns: Turn, **thinking: bool | str) -> str:
    builder = PromptBuilder(TINY, variant())
    request = GenerationRequest(turns=turns, thinking=ThinkingFields(**thinking))  # type: ignore[arg-type]
    return TINY.decode(builder.build(request).tokens)


@pytest.mark.contract("D41", "TMPL-020")
@pytest.mark.parametrize("family", FAMILIES)
def test_published_renderings(shared: Path, family: str) -> None:
    template = variant(published.template(shared, family).source)
    assert template.source != published.template(shared, family).source
    cases = json.loads((shared / "data/templates/rendered_cases.json").read_text())
    cases = [case for case in cases if case["template"] == family and "rendered" in case]
    seen = 0
    for case in cases:
        if case["name"] in SKIPPED:
            continue
        variables = {name: case[name] for name in ("messages", "tools", "add_generation_prompt")} | case["kwargs"]
        assert template.render(_null_is_empty(variables)) == case["rendered"], case["name"]
        seen += 1
    assert seen >= 15


def _null_is_empty(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    messages = [{**message, "content": message.get("content") or ""} for message in variables["messages"]]
    return {**variables, "messages": messages}


@pytest.mark.contract("THINK-015", "TMPL-020")
def test_the_published_template_that_knows_efforts(shared: Path) -> None:
    tokenizer, template = published.tokenizer(shared), published.template(shared, "qwen3_8")
    builder = PromptBuilder(tokenizer, variant(template.source))
    for effort, nearest in zip(
        ("minimal", "low", "medium", "high", "xhigh", "max"), ("low", "low", "medium", *["xhigh"] * 3), strict=True
    ):
        request = GenerationRequest(turns=(turn("user", "x"),), thinking=ThinkingFields(effort=effort))
        chat = [{"role": "user", "content": "x"}]
        expected = template.render({"messages": chat, "add_generation_prompt": True, "reasoning_effort": nearest})
        assert builder.build(request).tokens == tokenizer.encode(expected)


@pytest.mark.contract("D41")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("To call one", "If you want to call one"),  # sentences come from the template
        ("Think in one line.", "Hurry."),
        ("is not false", "is true"),  # thinking is off unless asked for
        ("is not defined or", "is defined and"),  # and reasoning is dropped unless asked for
        ("if ns.blocks %}", "if ns.blocks or messages[0].role == 'system' %}"),  # an empty block is a block
        ("if value is string else value", "if value is string or value is number or value is none else value"),
        ("message.content | trim ~", "message.content ~"),  # results as they are
    ],
)
def test_a_template_of_the_family_is_recognised(before: str, after: str) -> None:
    source = official.SOURCE.replace(before, after) if before else official.SOURCE
    assert source != official.SOURCE or not before
    assert maintained_variant(ChatTemplate(source)) is not None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<|im_start|>user", "<|im_start|>human"),
        ("<tool_call>\\n", "<tool_call>"),
        ("</tools>\\nTo", "</tools>' ~ style ~ '\\nTo"),  # means something by a variable of its own
        ("[messages[0].content | trim]", "[messages[0].content]"),
        ("\\n</think>\\n\\n' }}\n        {%- endif", "\\n</think>\\n' }}\n        {%- endif"),
        ("('\\n\\n' if answer else '')", "('\\n' if answer else '')"),
        ("if value is string else value", "if value is mapping else value"),
        ("loop.index0 > ns.query", "loop.last"),
    ],
)
def test_other_templates_are_not(before: str, after: str) -> None:
    source = official.SOURCE.replace(before, after)
    assert source != official.SOURCE
    assert maintained_variant(ChatTemplate(source)) is None


@pytest.mark.parametrize("source", ["", "x", tiny.FAMILY, "{{ raise_exception('never') }}", "{{ style }}"])
def test_templates_of_no_family(source: str) -> None:
    assert maintained_variant(ChatTemplate(source)) is None


@pytest.mark.contract("TMPL-001", "TMPL-021")
@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_and_developer_turns_stay_where_they_are(role: Role) -> None:
    prompt = rendered(turn("user", "one"), turn(role, " late \n"), turn("assistant", "two"), turn("user", "three"))
    order = ["user\none", "system\nlate", "assistant\n", "user\nthree"]
    places = [prompt.index(f"<|im_start|>{part}") for part in order]
    assert places == sorted(places)
    assert "<|im_start|>system\nlate<|im_end|>\n" in prompt


@pytest.mark.contract("TMPL-001")
def test_leading_turns_are_one_block() -> None:
    """TPL-01, TPL-02."""
    prompt = rendered(turn("system", "A"), turn("developer", "B"), turn("system", ""), turn("user", "x"))
    assert prompt.startswith("<|im_start|>system\nA\n\nB<|im_end|>\n<|im_start|>user\nx<|im_end|>\n")


@pytest.mark.contract("D36")
@pytest.mark.parametrize("role", ["system", "developer"])
def test_late_instructions_in_parts_and_in_one_are_one_prompt(role: Role) -> None:
    parts = rendered(turn("user", "x"), turn(role, "A", "", "\nB"), turn("user", "y"))
    assert parts == rendered(turn("user", "x"), turn(role, "A\nB"), turn("user", "y"))


CALL = ToolCall(id="c", name="look", arguments={"at": "x"})
BLOCK = "<tool_call>\n<function=look>\n<parameter=at>\nx\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ((turn("tool", "r", call_id="c"),), "<|im_start|>user\n<tool_response>\nr\n</tool_response><|im_end|>\n"),
        (
            (turn("tool", "r", call_id="c"), turn("tool", "s", call_id="d"), turn("user", "x")),
            "<|im_start|>user\n<tool_response>\nr\n</tool_response>\n<tool_response>\ns\n</tool_response><|im_end|>\n"
            "<|im_start|>user\nx<|im_end|>\n",
        ),
        ((turn("system", "x"),), "<|im_start|>system\nx<|im_end|>\n"),
        (
            (turn("system", "x"), turn("assistant", CALL), turn("tool", "r", call_id="c")),
            f"<|im_start|>system\nx<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n{BLOCK}<|im_end|>\n"
            "<|im_start|>user\n<tool_response>\nr\n</tool_response><|im_end|>\n",
        ),
    ],
)
def test_histories_that_official_templates_refuse(turns: tuple[Turn, ...], expected: str) -> None:
    """TPL-07: without a user's turn, and beginning with results."""
    assert rendered(*turns) == f"{expected}<|im_start|>assistant\n<think>\n"


@pytest.mark.contract("TMPL-002")
def test_a_final_assistant_turn_is_continued() -> None:
    prompt = rendered(turn("user", "x"), turn("assistant", Reasoning("why"), " so "), enabled=False)
    assert prompt.endswith("<|im_start|>assistant\n<think>\nwhy\n</think>\n\n so ")


@pytest.mark.contract("TMPL-020")
@pytest.mark.parametrize(("preserve", "kept"), [(True, True), (False, False)])
def test_preserving(preserve: bool, kept: bool) -> None:
    prompt = rendered(turn("user", "x"), turn("assistant", Reasoning("why"), "so"), turn("user"), preserve=preserve)
    assert ("<think>\nwhy\n</think>\n\nso" in prompt) == kept


@pytest.mark.contract("TMPL-016")
def test_what_the_variant_is_made_of_is_not_for_requests() -> None:
    builder = PromptBuilder(TINY, variant())
    plain = GenerationRequest(turns=(turn("user", "x"),))
    told = GenerationRequest(turns=plain.turns, template_kwargs={"family": {"openers": {}}})
    assert builder.build(told).tokens == builder.build(plain).tokens


def test_many_tools_and_leading_turns_take_no_quadratic_time() -> None:
    # Text that grew by each tool took longer than any rendering may, and kept others from being prepared.
    tools = [{"type": "function", "function": {"name": f"f{at}", "description": "d" * 500}} for at in range(30_000)]
    messages = [{"role": "system", "content": f" s{at}\n"} for at in range(30_000)]
    text = variant().render({"messages": messages, "tools": tools, "add_generation_prompt": False})
    assert text.count('"f29999"') == 1
    assert text.endswith("s29998\n\ns29999<|im_end|>\n")
