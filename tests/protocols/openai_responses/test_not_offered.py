"""Responses fields that are known and not offered: each is refused by its name, and none is ignored."""

import json
from typing import Any

import pytest

from ninfer.conversation import Unsupported
from ninfer.protocols.openai_responses.fields import refused_by_name
from tests.protocols.openai_responses.shelf import TOOLS, body, read, user

contract = pytest.mark.contract

NAMED: dict[str, tuple[dict[str, Any], str]] = {
    # what RESP-029 names -> members that ask for it, and where the refusal points
    "Conversations": ({"conversation": {"id": "conv_1"}}, "conversation"),
    "prompt templates": ({"prompt": {"id": "pmpt_1", "version": "2"}}, "prompt"),
    "context management": ({"context_management": [{"type": "compaction"}]}, "context_management"),
    "hosted moderation": ({"moderation": {"model": "omni-moderation-latest"}}, "moderation"),
    "another include value": ({"include": ["message.output_text.logprobs"]}, "include[0]"),
    "background": ({"background": True}, "background"),
    "a file": ({"input": [user([{"type": "input_file", "file_id": "f"}])]}, "input[0].content[0].type"),
    "audio": ({"input": [user([{"type": "input_audio", "input_audio": {}}])]}, "input[0].content[0].type"),
    "a forced hosted tool": ({"tool_choice": {"type": "file_search"}}, "tool_choice"),
    "an MCP tool": ({"tools": [{"type": "mcp", "server_label": "s", "server_url": "http://s"}]}, "tools[0].type"),
    "a custom tool": ({"tools": [{"type": "custom", "name": "c"}]}, "tools[0].type"),
}


@contract("RESP-029")
@pytest.mark.parametrize(("members", "param"), NAMED.values(), ids=NAMED)
def test_what_the_statement_names_is_refused(members: dict[str, Any], param: str) -> None:
    with pytest.raises(Unsupported) as caught:
        read(body(**members))
    assert (caught.value.param, caught.value.code) == (param, "unsupported_parameter")


@contract("RESP-028")
@pytest.mark.parametrize("name", sorted(refused_by_name()))
def test_a_field_that_is_recognized_and_not_offered_is_never_ignored(name: str) -> None:
    """Whatever the lists of fields hold: the message names the field and the value that was sent."""
    asking = {"background": True, "top_logprobs": 3}.get(name, "asked for")
    with pytest.raises(Unsupported) as caught:
        read(body(**{name: asking}))
    assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")
    assert caught.value.message.startswith(name)
    assert json.dumps(asking) in caught.value.message


@contract("D40")
@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"structured_outputs": {"json": {}}}, "structured_outputs"),
        ({"tool_constraints": "strict"}, "tool_constraints"),
        ({"tool_choice": "required", "tools": TOOLS}, "tool_choice"),
        ({"parallel_tool_calls": False, "tools": TOOLS}, "parallel_tool_calls"),
    ],
)
def test_a_part_that_is_not_built_is_refused_at_its_field(members: dict[str, Any], param: str) -> None:
    with pytest.raises(Unsupported) as caught:
        read(body(**members))
    assert (caught.value.param, caught.value.code) == (param, "unsupported_parameter")
