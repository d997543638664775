"""Tools, calls and their results in prompts."""

import json
from pathlib import Path

import pytest

from ninfer.conversation import GenerationRequest, Part, Role, Text, Tool, ToolCall, Turn
from ninfer.prompt import ChatTemplate, PromptBuilder
from ninfer.prompt.messages import FAILED_CALL
from tests.prompt import published, tiny

TINY = tiny.tokenizer()
LOOK = Tool(
    name="look",
    declaration={
        "type": "function",
        "function": {"name": "look", "parameters": {"z": 1, "a": {"type": ["object", None], "y": True, "b": "é"}}},
    },
)
SPEAK = Tool(name="speak", declaration={"function": {"name": "speak"}, "type": "function"})
CALL = ToolCall(id="c1", name="look", arguments={"z": "at", "a": [1, {"y": None, "b": 2.5}]})


def turn(role: Role, *parts: str | Part, call_id: str | None = None, is_error: bool = False) -> Turn:
    wrapped = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Turn(role=role, parts=wrapped, call_id=call_id, is_error=is_error)


def text(*turns: Turn, tools: tuple[Tool, ...] = (), allowed: bool = True, source: str = tiny.FAMILY) -> str:
    builder = PromptBuilder(TINY, ChatTemplate(source))
    request = GenerationRequest(turns=turns, tools=tools, calls_allowed=allowed)
    return TINY.decode(builder.build(request).tokens)


@pytest.mark.contract("TMPL-005", "TOOL-027")
@pytest.mark.parametrize("allowed", [True, False])
def test_declarations_keep_the_order_of_their_members(allowed: bool) -> None:
    """And those of a request that allows no calls are shown all the same."""
    prompt = text(turn("user", "x"), tools=(LOOK, SPEAK), allowed=allowed)
    shown = "".join("\n" + json.dumps(tool.declaration, ensure_ascii=False) for tool in (LOOK, SPEAK))
    assert prompt.startswith(f"<|im_start|>tools{shown}<|im_end|>\n<|im_start|>user")


@pytest.mark.contract("TMPL-006", "TOOL-027")
def test_calls_and_results_of_the_history() -> None:
    """TPL-03, TPL-05: arguments are a mapping, and a turn of calls alone has empty content."""
    prompt = text(turn("user", "x"), turn("assistant", CALL), turn("tool", "it ", "is", call_id="c1"))
    assert '<think>\n\n</think>\n\n<tool_call>look\nz=at\na=[1, {"y": null, "b": 2.5}]</tool_call><|im_end|>' in prompt
    assert "<|im_start|>user\n<tool_response>\nit is\n</tool_response><|im_end|>" in prompt
    assert "None" not in prompt


@pytest.mark.contract("TMPL-007")
def test_what_a_client_reorders_is_another_prompt() -> None:
    turns = turn("user", "x"), turn("assistant", CALL), turn("tool", "r", call_id="c1")
    swapped = ToolCall(id="c1", name="look", arguments=dict(reversed(CALL.arguments.items())))
    assert text(*turns) != text(turns[0], turn("assistant", swapped), turns[2])


@pytest.mark.parametrize("content", ["", "no such file", "two\nlines "])
def test_a_failed_call_is_marked(content: str) -> None:
    turns = turn("user", "x"), turn("assistant", CALL)
    failed = text(*turns, turn("tool", content, call_id="c1", is_error=True))
    shown = f"{FAILED_CALL}\n{content}".strip()
    assert f"<tool_response>\n{shown}\n</tool_response>" in failed
    assert FAILED_CALL not in text(*turns, turn("tool", content, call_id="c1"))


def test_templates_can_tell_which_call_a_result_is_of() -> None:
    source = (
        "{% for m in messages %}{{ m.tool_call_id }}/{{ m.name }}/"
        "{% if m.tool_calls %}{{ m.tool_calls[0].id }}{% endif %};{% endfor %}"
    )
    turns = turn("assistant", CALL), turn("tool", "r", call_id="c1"), turn("tool", "r", call_id="c2"), turn("user")
    assert text(*turns, source=source) == "//c1;c1/look/;c2//;//;"


@pytest.mark.parametrize("family", ["qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8", "qwen3"])
def test_published_renderings_with_tools(shared: Path, family: str) -> None:
    tokenizer = published.tokenizer(shared)
    builder = PromptBuilder(tokenizer, published.template(shared, family))
    cases = json.loads((shared / "data/templates/rendered_cases.json").read_text())
    cases = [case for case in cases if case["template"] == family and case["tools"] and "rendered" in case]
    cases = [case for case in cases if not case["name"].startswith("tool_args_")]
    assert {case["name"] for case in cases} == {"tools", "tool_round", "tool_round_two", "none_content"}
    for case in cases:
        request = GenerationRequest(
            turns=tuple(map(published.turn, case["messages"])), tools=tuple(map(published.tool, case["tools"]))
        )
        assert builder.build(request).tokens == tokenizer.encode(case["rendered"]), case["name"]
