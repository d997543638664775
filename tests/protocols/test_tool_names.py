"""Names of tools: one alphabet for declarations and calls, so that every tool that is declared can be called (K1)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import MAX_TOOL_NAME_CHARS, TOOL_NAME, InvalidRequest, Tool
from ninfer.protocols.registry import load_protocols
from ninfer.reply import ToolFront
from ninfer.server.app import create_app
from ninfer.testing import CARD, FakeHost, post_json
from tests.fuzz.house import MODEL, open_house
from tests.protocols.everywhere import CHAT, MESSAGES, RESPONSES, Said, raw, said

ALPHABET = "AZaz09_-."
TEXT = {"type": "object", "properties": {"a": {"type": "string"}}}


def call(name: str) -> str:
    return f"<tool_call>\n<function={name}>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.contract("TOOL-027")
@pytest.mark.parametrize("name", ["fs.read", "a.b-c_D9", "...", ".", "x" * 128])
async def test_a_declared_name_is_called(name: str) -> None:
    assert await said(f'[[call:{name} {{"a":"x"}}]]', {name: TEXT}) == Said("", ((name, {"a": "x"}),))


async def test_a_dotted_call_costs_no_other_its_place() -> None:
    text = f"{call('plain')}\n{call('fs.read')}"
    both = Said("", (("plain", {"a": "x"}), ("fs.read", {"a": "x"})))
    assert await said(raw(text), {"plain": TEXT, "fs.read": TEXT}) == both


@pytest.mark.contract("CHAT-022")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_dotted_free_form_tool_is_called(stream: bool) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": '[[call:notes.add {"input":"milk"}]]'}],
        "tools": [{"type": "custom", "custom": {"name": "notes.add"}}],
        "enable_thinking": False,
        "max_tokens": 900,
        "stream": stream,
    }
    async with open_house() as house:
        answer = await post_json(create_app(house.service, load_protocols(house.service)), CHAT, body)
    assert '"custom":{"name":"notes.add","input":"milk"}' in answer.body.decode()


@pytest.mark.contract("RITEM-023")
@pytest.mark.parametrize("group", ["docs.v1", "n" * 128])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_function_of_a_namespace_is_called(group: str, stream: bool) -> None:
    # Joined, two long names are longer than any that stands alone.
    name = "fs.read" if group == "docs.v1" else "f" * 128
    body = {
        "model": MODEL,
        "input": f'[[call:{group}__{name} {{"a":"x"}}]]',
        "tools": [{"type": "namespace", "name": group, "tools": [{"type": "function", "name": name}]}],
        "reasoning": {"effort": "none"},
        "max_output_tokens": 900,
        "stream": stream,
    }
    async with open_house() as house:
        answer = await post_json(create_app(house.service, load_protocols(house.service)), RESPONSES, body)
    assert answer.status == 200
    item = {"name": name, "arguments": '{"a":"x"}', "status": "completed", "namespace": group}
    assert json.dumps(item, separators=(",", ":"))[1:-1] in answer.body.decode()


def declared(path: str, name: object) -> dict[str, Any]:
    function = {"type": "function", "name": name}
    return {
        CHAT: {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": function}]},
        RESPONSES: {"input": "x", "tools": [function]},
        MESSAGES: {
            "messages": [{"role": "user", "content": "x"}],
            "tools": [{"name": name, "input_schema": {"type": "object"}}],
        },
    }[path]


@pytest.mark.contract("ERR-003", "ERR-005")
@pytest.mark.parametrize(
    ("path", "param"),
    [(CHAT, "tools[0].function.name"), (RESPONSES, "tools[0].name"), (MESSAGES, "tools[0].name")],
)
@pytest.mark.parametrize("name", ["a b", "a>b", "a/b", "größe", "x" * 129])
async def test_a_name_that_could_not_be_called_is_refused(path: str, param: str, name: str) -> None:
    host = FakeHost()
    app = create_app(host, load_protocols(host))
    answer = await post_json(app, path, {"model": CARD.id, **declared(path, name)})
    error = answer.json()["error"]
    assert answer.status == 400
    assert error["message"].startswith(f"{param}: expected 1 to 128 letters, digits, _, - or ., got ")
    assert host.requests == []


@given(
    st.text(ALPHABET, min_size=1, max_size=40) | st.sampled_from(ALPHABET).map(lambda one: one * MAX_TOOL_NAME_CHARS)
)
def test_what_a_tool_may_be_called_is_read(name: str) -> None:
    tool = Tool(name=name, declaration={})
    front = ToolFront({tool.name: {}})
    front.feed(call(name))
    assert [found.name for found in front.finish().calls] == [name]


@given(st.text(max_size=4))
def test_no_tool_has_a_name_that_is_not_read(name: str) -> None:
    if name and TOOL_NAME.fullmatch(name):
        return
    with pytest.raises(InvalidRequest):
        Tool(name=name, declaration={})
