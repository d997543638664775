"""Bodies that are refused: by path and code, in one table; and what is passed over instead."""

from typing import Any

import pytest

from ninfer.conversation import InvalidRequest
from ninfer.protocols.anthropic_messages.decode import decode, decode_count
from tests.protocols.anthropic_messages.bodies import (
    USER,
    assistant,
    body,
    refusal,
    request,
    result,
    said,
    text,
    tool,
    use,
    user,
)

contract = pytest.mark.contract
SOURCE = {"type": "base64", "media_type": "image/png", "data": "aGk="}


def block(kind: str, **members: object) -> Any:
    return said(user(text("x"), {"type": kind, **members}))


def tools(**members: object) -> Any:
    return body(tools=[tool("a"), tool("b", **members)])


MALFORMED = [
    # body, path, code
    ({"messages": [USER]}, "model", "missing_required_parameter"),
    (body(model=None), "model", "missing_required_parameter"),
    (body(model=""), "model", "invalid_value"),
    (body(model=5), "model", "invalid_type"),
    ({"model": "m"}, "messages", "missing_required_parameter"),
    (body(messages=[]), "messages", "invalid_value"),
    (body(messages={}), "messages", "invalid_type"),
    (body(messages=["x"]), "messages[0]", "invalid_type"),
    (said(USER, {"role": "robot", "content": "x"}), "messages[1].role", "invalid_value"),
    (said({"content": "x"}), "messages[0].role", "missing_required_parameter"),
    (said({"role": "user", "content": 5}), "messages[0].content", "invalid_type"),
    (said({"role": "user", "content": ["x"]}), "messages[0].content[0]", "invalid_type"),
    (said(user({"text": "x"})), "messages[0].content[0].type", "missing_required_parameter"),
    (said(user({"type": 5})), "messages[0].content[0].type", "invalid_value"),
    (said(user({"type": "text"})), "messages[0].content[0].text", "missing_required_parameter"),
    (said(user({"type": "text", "text": 5})), "messages[0].content[0].text", "invalid_type"),
    (said(user({"type": "hologram"})), "messages[0].content[0].type", "invalid_value"),
    (said(user(use("a"))), "messages[0].content[0].type", "invalid_value"),
    (said(user({"type": "thinking", "thinking": "x"})), "messages[0].content[0].type", "invalid_value"),
    (said(USER, assistant(result("a"))), "messages[1].content[0].type", "invalid_value"),
    (said(USER, {"role": "system", "content": [use("a")]}), "messages[1].content[0].type", "invalid_value"),
    (said(USER, assistant({**use("a"), "id": ""})), "messages[1].content[0].id", "invalid_value"),
    (said(USER, assistant({**use("a"), "name": 5})), "messages[1].content[0].name", "invalid_type"),
    (said(USER, assistant({**use("a"), "input": [1]})), "messages[1].content[0].input", "invalid_type"),
    (said(USER, assistant({**use("a"), "input": "[1]"})), "messages[1].content[0].input", "invalid_value"),
    (body(messages=[{"role": "user"}]), "messages[0].content", "missing_required_parameter"),
    (
        body(messages=[USER, {"role": "assistant", "content": None}]),
        "messages[1].content",
        "missing_required_parameter",
    ),
    (said(USER, assistant({**use("a"), "input": None})), "messages[1].content[0].input", "missing_required_parameter"),
    (said(user({"type": "tool_result"})), "messages[0].content[0].tool_use_id", "missing_required_parameter"),
    (said(user(result("a", 5))), "messages[0].content[0].content", "invalid_type"),
    (said(user(result("a", ["x"]))), "messages[0].content[0].content[0]", "invalid_type"),
    (said(user(result("a", [use("b")]))), "messages[0].content[0].content[0].type", "invalid_value"),
    (said(user(result("a", is_error="no"))), "messages[0].content[0].is_error", "invalid_type"),
    (body(system=5), "system", "invalid_type"),
    (body(system=[use("a")]), "system[0].type", "invalid_value"),
    (body(system=[{"type": "text"}]), "system[0].text", "missing_required_parameter"),
    (body(stream="yes"), "stream", "invalid_type"),
    (body(preserve_thinking="yes"), "preserve_thinking", "invalid_type"),
    (body(chat_template_kwargs=[]), "chat_template_kwargs", "invalid_type"),
    (body(tools={}), "tools", "invalid_type"),
    (body(tools=[5]), "tools[0]", "invalid_type"),
    (body(tools=[{"input_schema": {}}]), "tools[0].name", "missing_required_parameter"),
    (body(tools=[{"name": "a"}]), "tools[0].input_schema", "missing_required_parameter"),
    (tools(name=""), "tools[1].name", "invalid_value"),
    (tools(name="a"), "tools[1].name", "invalid_value"),
    (tools(description=5), "tools[1].description", "invalid_type"),
    (tools(input_schema=[]), "tools[1].input_schema", "invalid_type"),
    (tools(input_schema={"type": "string"}), "tools[1].input_schema.type", "invalid_value"),
    (tools(input_schema={"type": "array"}), "tools[1].input_schema.type", "invalid_value"),
    (tools(input_schema={"type": ["object", "null"]}), "tools[1].input_schema.type", "invalid_value"),
    (tools(input_examples=[5]), "tools[1].input_examples[0]", "invalid_type"),
    (body(tool_choice="auto"), "tool_choice", "invalid_type"),
    (body(tool_choice={}), "tool_choice.type", "missing_required_parameter"),
    (body(tool_choice={"type": "maybe"}), "tool_choice.type", "invalid_value"),
    (body(thinking={}), "thinking.type", "missing_required_parameter"),
    (body(thinking={"type": "on"}), "thinking.type", "invalid_value"),
    (body(thinking={"type": "adaptive", "display": 5}), "thinking.display", "invalid_type"),
    (body(output_config={"effort": "none"}), "output_config.effort", "invalid_value"),
    (body(output_config={"effort": 5}), "output_config.effort", "invalid_type"),
]


@contract("ERR-003", "ERR-004", "ERR-005")
@pytest.mark.parametrize(("wire", "param", "code"), MALFORMED)
def test_malformed_bodies(wire: Any, param: str, code: str) -> None:
    assert refusal(wire) == (code, param)
    if param != "stream":  # which does not concern a count
        with pytest.raises(InvalidRequest):
            decode_count(wire)


@pytest.mark.parametrize("wire", [None, [], "x", 5])
def test_a_body_that_is_no_object(wire: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^body: expected an object") as caught:
        decode(wire)
    assert caught.value.param is None


@contract("ANTH-011", "ANTH-012", "ANTH-018")
@pytest.mark.parametrize(
    ("member", "value", "path"),
    [
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", -1, "max_tokens"),
        ("max_tokens", 1.5, "max_tokens"),
        ("temperature", 2.1, "temperature"),
        ("temperature", "hot", "temperature"),
        ("top_p", 1.01, "top_p"),
        ("top_k", 21, "top_k"),
        ("top_k", -1, "top_k"),
        ("stop_sequences", "x", "stop_sequences"),
        ("stop_sequences", [""], "stop_sequences[0]"),
        ("stop_sequences", ["a", "b", "c", "d", "e"], "stop_sequences"),
        ("stop_sequences", ["a", 5], "stop_sequences[1]"),
        ("thinking", {"type": "enabled"}, "thinking.budget_tokens"),
        ("thinking", {"type": "enabled", "budget_tokens": 1023}, "thinking.budget_tokens"),
        ("thinking", {"type": "enabled", "budget_tokens": 2048.0}, "thinking.budget_tokens"),
    ],
)
def test_values_out_of_range(member: str, value: object, path: str) -> None:
    assert refusal(body(**{member: value}))[1] == path


# What is understood and not offered


@contract("ANTH-044", "ANTH-030", "D40", "D44")
@pytest.mark.parametrize(
    ("wire", "param"),
    [
        pytest.param(body(structured_outputs={"regex": "a"}), "structured_outputs", id="constraints"),
        pytest.param(body(tool_constraints="enforce"), "tool_constraints", id="tool constraints"),
        pytest.param(body(output_config={"format": {"type": "json_schema"}}), "output_config.format", id="format"),
        pytest.param(body(output_format={"type": "json_schema"}), "output_format", id="the old format"),
        pytest.param(body(grammar="root"), "grammar", id="grammar"),
        pytest.param(body(guided_json={}), "guided_json", id="guided"),
        pytest.param(body(**{"guided_ü\n": 1}), "guided_\\u00fc\\n", id="guided by something odd"),
        pytest.param(body(mcp_servers=[{"url": "x"}]), "mcp_servers", id="MCP"),
        pytest.param(body(container="c"), "container", id="container"),
        pytest.param(body(chat_template="x"), "chat_template", id="template"),
        pytest.param(body(chat_template_kwargs={"messages": []}), "chat_template_kwargs.messages", id="its variables"),
        pytest.param(body(tool_choice={"type": "any"}), "tool_choice.type", id="any"),
        pytest.param(body(tool_choice={"type": "tool", "name": "a"}), "tool_choice.type", id="a named tool"),
        pytest.param(
            body(tool_choice={"type": "auto", "disable_parallel_tool_use": True}),
            "tool_choice.disable_parallel_tool_use",
            id="one call at most",
        ),
        pytest.param(tools(strict=True), "tools[1].strict", id="strict"),
        pytest.param(tools(type="bash_20250124"), "tools[1].type", id="a tool of theirs"),
        pytest.param(tools(type="web_search_20250305"), "tools[1].type", id="a server tool"),
        pytest.param(body(tools=[{"type": "mcp_toolset", "mcp_server_name": "x"}]), "tools[0].type", id="a toolset"),
        pytest.param(
            tools(allowed_callers=["code_execution_20250825"]), "tools[1].allowed_callers", id="no direct calls"
        ),
        pytest.param(block("document", source=SOURCE), "messages[0].content[1]", id="document"),
        pytest.param(block("search_result", content=[]), "messages[0].content[1]", id="search result"),
        pytest.param(block("container_upload", file_id="f"), "messages[0].content[1]", id="upload"),
        pytest.param(block("web_search_tool_result"), "messages[0].content[1]", id="server result"),
        pytest.param(block("mcp_tool_use"), "messages[0].content[1]", id="MCP call"),
        pytest.param(said(user(result("a", [{"type": "document"}]))), "messages[0].content[0].content[0]", id="inner"),
        pytest.param(said(USER, assistant({"type": "server_tool_use"})), "messages[1].content[0]", id="server call"),
    ],
)
def test_what_is_not_offered(wire: Any, param: str) -> None:
    assert refusal(wire) == ("unsupported_parameter", param)


@contract("ERR-009", "ANTH-044")
@pytest.mark.parametrize(
    ("wire", "param"),
    [
        (block("image", source=SOURCE), "messages[0].content[1]"),
        (
            said(user(result("a", [text("x"), {"type": "image", "source": SOURCE}]))),
            "messages[0].content[0].content[1]",
        ),
    ],
    ids=["ANT-05", "ANT-04"],
)
def test_pictures_are_refused_where_they_stand(wire: Any, param: str) -> None:
    assert refusal(wire) == ("vision_disabled", param)
    with pytest.raises(InvalidRequest) as caught:
        decode_count(wire)
    assert caught.value.code == "vision_disabled"


@contract("ANTH-045", "D10")
@pytest.mark.parametrize(
    "members",
    [
        {"metadata": {"user_id": "{}"}},
        {"metadata": "not even an object"},
        {"service_tier": "standard_only", "inference_geo": "eu", "speed": "fast"},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}},
        {"betas": ["x"], "diagnostics": {}, "user_profile_id": "u", "wholly_unknown": [1, {"a": 2}]},
        {"container": None, "mcp_servers": [], "output_config": {"format": None, "task_budget": {"total": 1}}},
        {"tool_constraints": "auto", "structured_outputs": None, "chat_template_kwargs": None},
        {"thinking": {"type": "adaptive", "block_binding": "x"}, "tool_choice": {"type": "auto"}},
        {"messages": [{**USER, "name": "x"}]},
        {"messages": [user(text("Hi", citations=[{"type": "char_location"}], unknown=1))]},
        {"tools": []},
        {"tools": [tool(type="custom", eager_input_streaming=True, strict=False, allowed_callers=["direct"])]},
        {"tools": [tool(cache_control=None, defer_loading=None, input_examples=None, description=None)]},
    ],
)
def test_what_asks_for_nothing_is_passed_over(members: dict[str, object]) -> None:
    assert request(body(**members)).turns == request(body()).turns


@contract("ANTH-046")
@pytest.mark.parametrize("label", ["claude-sonnet-4-5", "x", "ü/ 1"])
def test_any_label_is_a_model(label: str) -> None:
    assert decode(body(model=label)).model == label
