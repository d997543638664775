"""Tools of a Chat request: what the model is shown, what is refused."""

from typing import Any

import pytest

from ninfer.conversation import InvalidRequest, RequestError, Unsupported
from ninfer.protocols.openai_chat.decode import decode
from tests.protocols.names import CountedName, counted_names

contract = pytest.mark.contract


def function(name: Any = "f", **members: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **members}}


def custom(name: Any = "patch", **members: Any) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": name, **members}}


def read(*tools: Any, **members: Any) -> Any:
    return decode(
        {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": tools and list(tools), **members}
    )


@contract("TMPL-005")
def test_a_function() -> None:
    parameters = {"required": ["z"], "type": "object", "properties": {"z": {"type": "string"}, "a": {}}}
    declared = {"parameters": parameters, "name": "f", "strict": False, "description": "d", "more": 1}
    (tool,) = read({"type": "function", "function": declared, "cache": 1}).request.tools
    assert (tool.name, tool.parameters, tool.free_form) == ("f", parameters, False)
    assert tool.declaration == {
        "type": "function",
        "function": {"parameters": parameters, "name": "f", "description": "d"},
    }
    assert list(tool.declaration["function"]) == ["parameters", "name", "description"]  # type: ignore[call-overload]
    assert list(tool.parameters) == ["required", "type", "properties"]


@contract("D33")
def test_a_function_without_parameters() -> None:
    for declared in (function(), function(parameters=None, description=None, strict=None)):
        (tool,) = read(declared).request.tools
        assert tool.parameters is None
        assert tool.declaration == function()


def test_a_thousand_tools_are_not_compared_each_with_each() -> None:
    names = counted_names(1000)
    assert [tool.name for tool in read(*map(function, names)).request.tools] == names
    assert CountedName.compared < 10 * len(names)


@contract("CHAT-021")
@pytest.mark.parametrize("format_", [{}, {"format": None}, {"format": {"type": "text"}}])
def test_a_free_form_tool_is_shown_as_a_function_of_one_string(format_: Any) -> None:
    call = read(custom(description="Edits files.", **format_), function())
    tool = call.request.tools[0]
    assert tool.free_form
    assert call.shape.free_form == {"patch"}
    assert tool.declaration == {
        "type": "function",
        "function": {"name": "patch", "description": "Edits files.", "parameters": tool.parameters},
    }
    assert tool.parameters == {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


@pytest.mark.parametrize(("choice", "allowed"), [(None, True), ("auto", True), ("none", False)])
def test_the_choice(choice: Any, allowed: bool) -> None:
    request = read(function(), tool_choice=choice).request
    assert request.calls_allowed is allowed
    assert len(request.tools) == 1  # declarations stay in the prompt


@contract("D40")
@pytest.mark.parametrize(
    ("tools", "members", "param"),
    [
        ([function(strict=True)], {}, "tools[0].function.strict"),
        ([function(), custom(format={"type": "grammar", "grammar": {}})], {}, "tools[1].custom.format"),
        ([function()], {"parallel_tool_calls": False}, "parallel_tool_calls"),
        ([function()], {"tool_choice": "required"}, "tool_choice"),
        ([function()], {"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ],
)
def test_what_would_have_to_be_constrained(tools: Any, members: Any, param: str) -> None:
    with pytest.raises(Unsupported) as caught:
        read(*tools, **members)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", param)


@contract("ERR-003", "ERR-005")
@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"function": {"name": "f"}}, "type"),
        ({"type": "web_search"}, "type"),
        ({"type": "function"}, "function"),
        ({"type": "function", "name": "f"}, "function"),
        ({"type": "custom"}, "custom"),
        ({"type": "function", "function": "f"}, "function"),
        (function(None), "function.name"),
        (function(""), "function.name"),
        (function("a b"), "function.name"),
        (function("a>b"), "function.name"),
        (function("a" * 129), "function.name"),
        (custom("<x>"), "custom.name"),
        (function(parameters=[]), "function.parameters"),
        (function(description=1), "function.description"),
        (function(strict="yes"), "function.strict"),
    ],
)
def test_malformed_declarations(tool: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(function("before"), tool)
    assert isinstance(caught.value, InvalidRequest)
    assert caught.value.param == f"tools[1].{param}"
    assert caught.value.message.startswith(f"tools[1].{param}: ")


def test_two_tools_of_one_name() -> None:
    with pytest.raises(InvalidRequest, match="twice") as caught:
        read(function("f"), custom("f"))
    assert caught.value.param == "tools[1].custom.name"
