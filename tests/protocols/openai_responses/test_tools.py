"""Tools: flat functions and namespaces, the identities between, and what is refused or left out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import RequestError
from ninfer.protocols.openai_responses.tools import read_tools
from tests.protocols.names import CountedName, counted_names
from tests.protocols.openai_responses.shelf import body, read

contract = pytest.mark.contract

SCHEMA = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}}


def function(name: str, **members: object) -> dict[str, Any]:
    return {"type": "function", "name": name, **members}


def namespace(name: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "description": "d", "tools": list(tools)}


@contract("TMPL-005")
def test_a_function_as_the_template_shows_it() -> None:
    flat = function("f", strict=False, parameters=SCHEMA, description="d")
    (tool,) = read_tools([flat]).tools
    assert tool.declaration == {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "description": "d"}}
    shown: Any = tool.declaration["function"]
    assert list(shown) == ["name", "parameters", "description"]
    assert list(shown["parameters"]["properties"]) == ["z", "a"]
    assert tool.parameters == SCHEMA


@contract("D33")
def test_a_function_needs_no_parameters() -> None:
    (tool,) = read_tools([function("f", parameters=None, description=None)]).tools
    assert tool.parameters is None
    assert tool.declaration == {"type": "function", "function": {"name": "f"}}


@contract("RITEM-021", "RITEM-022", "RITEM-024")
def test_namespaces() -> None:  # RSP-02
    table = read_tools([namespace("a", function("f"), function("g")), function("f"), namespace("b", function("f"))])
    assert [tool.name for tool in table.tools] == ["a__f", "a__g", "f", "b__f"]
    shown: list[Any] = [tool.declaration["function"] for tool in table.tools]
    assert [one["name"] for one in shown] == ["a__f", "a__g", "f", "b__f"]
    for identity, origin in {
        "a__f": ("a", "f"),
        "f": (None, "f"),
        "b__f": ("b", "f"),
        "other": (None, "other"),
    }.items():
        assert table.origin(identity) == origin
        assert table.identity(origin) == identity


@contract("RITEM-022")
def test_identities_that_would_be_the_same() -> None:
    table = read_tools([namespace("a__b", function("c")), namespace("a", function("b__c")), function("a__b__c")])
    assert [tool.name for tool in table.tools] == ["a__b__c_2", "a__b__c_3", "a__b__c"]
    assert [table.origin(tool.name) for tool in table.tools] == [("a__b", "c"), ("a", "b__c"), (None, "a__b__c")]


names = st.sampled_from(["a", "b", "a__b", "b__a", "a_", "_a"])


@given(st.dictionaries(names, st.sets(names), max_size=4), st.sets(names))
@contract("RITEM-022", "RITEM-023")
def test_identities_are_unique_and_lead_back(groups: dict[str, set[str]], flat: set[str]) -> None:
    declared = [namespace(name, *map(function, sorted(inner))) for name, inner in groups.items()]
    table = read_tools([*declared, *map(function, sorted(flat))])
    identities = [tool.name for tool in table.tools]
    assert len(set(identities)) == len(identities)
    assert all(table.identity(table.origin(identity)) == identity for identity in identities)
    assert all(table.origin(name) == (None, name) for name in flat)


def test_a_thousand_tools_are_not_compared_each_with_each() -> None:
    names = counted_names(1000)
    assert [tool.name for tool in read_tools(list(map(function, names))).tools] == names
    assert CountedName.compared < 10 * len(names)


@pytest.mark.parametrize(
    "kind", ["web_search", "web_search_preview", "web_search_2025_08_26", "file_search", "code_interpreter"]
)
@contract("D26")
def test_hosted_tools_are_left_out(kind: str) -> None:  # RSP-01
    table = read_tools([function("f"), {"type": kind, "external_web_access": True}, {"type": kind}])
    assert [tool.name for tool in table.tools] == ["f"]
    assert table.ignored == (kind,)
    assert [tool["type"] for tool in table.echoed] == ["function"]


@pytest.mark.parametrize(
    ("tool", "param", "code"),
    [
        ({"type": "mcp", "server_label": "x"}, "tools[0].type", "unsupported_parameter"),
        ({"type": "custom", "name": "apply_patch"}, "tools[0].type", "unsupported_parameter"),
        ({"type": "local_shell"}, "tools[0].type", "unsupported_parameter"),
        ({"type": "computer_use_preview"}, "tools[0].type", "unsupported_parameter"),
        ({"type": "some new\nthing"}, "tools[0].type", "unsupported_parameter"),
        ({"type": "web_search_２０２５_08_26"}, "tools[0].type", "unsupported_parameter"),
        (namespace("a", {"type": "custom", "name": "c"}), "tools[0].tools[0].type", "unsupported_parameter"),
        (namespace("a", {"type": "web_search"}), "tools[0].tools[0].type", "unsupported_parameter"),
        (function("f", defer_loading=True), "tools[0].defer_loading", "unsupported_parameter"),
        (function("f", output_schema={}), "tools[0].output_schema", "unsupported_parameter"),
        (function("f", allowed_callers=["code"]), "tools[0].allowed_callers", "unsupported_parameter"),
        pytest.param(function("f", strict=True), "tools[0].strict", "unsupported_parameter", marks=contract("D40")),
        ({"name": "f"}, "tools[0].type", "missing_required_parameter"),
        ({"type": "function"}, "tools[0].name", "missing_required_parameter"),
        (function(""), "tools[0].name", "invalid_value"),
        (function("a b"), "tools[0].name", "invalid_value"),
        (function("f" * 129), "tools[0].name", "invalid_value"),
        (function("f", parameters=[]), "tools[0].parameters", "invalid_type"),
        (function("f", description=1), "tools[0].description", "invalid_type"),
        ({"type": "namespace", "name": "a"}, "tools[0].tools", "missing_required_parameter"),
        (namespace("a>b", function("f")), "tools[0].name", "invalid_value"),
        ({"type": "namespace", "name": "a", "tools": 7}, "tools[0].tools", "invalid_type"),
        ({"type": "namespace", "name": "a", "tools": [7]}, "tools[0].tools[0]", "invalid_type"),
        (namespace("a", function("f"), function("f")), "tools[0].tools[1].name", "invalid_value"),
    ],
)
@contract("RITEM-026")
def test_refused(tool: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(body(tools=[tool]))
    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.message.startswith(param)


def test_two_of_one_name() -> None:
    with pytest.raises(RequestError) as caught:
        read(body(tools=[function("f"), function("g"), function("f")]))
    assert caught.value.param == "tools[2].name"


@contract("RITEM-026")
def test_callers_that_include_the_model() -> None:
    assert read_tools([function("f", allowed_callers=["direct", "code"], defer_loading=False)]).tools


def test_choices() -> None:
    assert read(body(tools=[function("f")])).request.calls_allowed
    assert read(body(tools=[function("f")], tool_choice="auto", parallel_tool_calls=True)).request.calls_allowed
    none = read(body(tools=[function("f")], tool_choice="none")).request
    assert not none.calls_allowed
    assert [tool.name for tool in none.tools] == ["f"]
