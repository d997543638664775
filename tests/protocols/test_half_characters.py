"""A character cut in half by a client: the conversation goes on, on every protocol, answered and counted (bug kind)."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ninfer.protocols.registry import load_protocols
from ninfer.server.app import create_app
from ninfer.testing import CARD, FakeHost, post_json

HALF = "cut \ud83d"
MENDED = "cut \ufffd"
ESCAPED = json.dumps({"a": HALF})
"""Arguments in a string whose own escape is the half."""


def chat(*messages: Any) -> Mapping[str, Any]:
    return {"messages": [*messages, {"role": "user", "content": "go on"}]}


def chat_call(arguments: object) -> Any:
    return {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}


def said(*messages: Any) -> Mapping[str, Any]:
    return {"messages": [{"role": "user", "content": "Hi"}, *messages, {"role": "user", "content": "go on"}]}


def use(input_: object) -> Any:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": input_}]}


def result(content: object) -> Any:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": content}]}


def items(*given: Any) -> Mapping[str, Any]:
    return {"input": [*given, {"role": "user", "content": "go on"}]}


def call_item(arguments: object) -> Any:
    return {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}


CHAT_RESULT = {"role": "tool", "tool_call_id": "c", "content": "ok"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "ok"}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
TEXT: dict[str, tuple[str, Mapping[str, Any]]] = {
    # case -> path, body whose only half becomes text or an argument of some turn
    "chat": (CHAT, chat({"role": "user", "content": HALF})),
    "chat part": (CHAT, chat({"role": "system", "content": [{"type": "text", "text": HALF}]})),
    "chat refusal": (CHAT, chat({"role": "assistant", "refusal": HALF})),
    "chat reasoning": (CHAT, chat({"role": "assistant", "content": "x", "reasoning_content": HALF})),
    "chat result": (CHAT, chat(chat_call("{}"), {**CHAT_RESULT, "content": HALF})),
    "chat arguments": (CHAT, chat(chat_call(ESCAPED), CHAT_RESULT)),
    "chat raw arguments": (CHAT, chat(chat_call(f'{{"a": "{HALF}"}}'), CHAT_RESULT)),
    "responses": (RESPONSES, {"input": HALF}),
    "responses instructions": (RESPONSES, {"input": "x", "instructions": HALF}),
    "responses message": (RESPONSES, items({"role": "user", "content": [{"type": "input_text", "text": HALF}]})),
    "responses arguments": (RESPONSES, items(call_item(ESCAPED), OUTPUT)),
    "responses output": (RESPONSES, items(call_item("{}"), {**OUTPUT, "output": HALF})),
    "messages": (MESSAGES, said({"role": "assistant", "content": HALF})),
    "messages system": (MESSAGES, {**said(), "system": [{"type": "text", "text": HALF}]}),
    "messages thinking": (MESSAGES, said({"role": "assistant", "content": [{"type": "thinking", "thinking": HALF}]})),
    "messages input": (MESSAGES, said(use({"a": HALF}), result("ok"))),
    "messages result": (MESSAGES, said(use({}), result([{"type": "text", "text": HALF}]))),
}
COUNTS = {RESPONSES: "/v1/responses/input_tokens", MESSAGES: "/v1/messages/count_tokens"}


@pytest.mark.parametrize(("path", "body"), TEXT.values(), ids=TEXT)
async def test_half_a_character_in_text_is_replaced(path: str, body: Mapping[str, Any]) -> None:
    host = FakeHost()
    app = create_app(host, load_protocols(host))
    for route in {path, COUNTS.get(path, path)}:
        for stream in (False, True):
            answer = await post_json(app, route, {"model": CARD.id, **body, **({"stream": True} if stream else {})})
            assert answer.status == 200, answer.body
    for request in host.requests:
        texts = [turn.text for turn in request.turns] + [turn.reasoning or "" for turn in request.turns]
        arguments = [value for turn in request.turns for call in turn.calls for value in call.arguments.values()]
        assert MENDED in (*texts, *arguments)


async def test_a_stored_response_shows_the_mended_text() -> None:
    host = FakeHost()
    app = create_app(host, load_protocols(host))
    stored = (await post_json(app, RESPONSES, {"model": CARD.id, "input": HALF})).json()
    again = await post_json(app, RESPONSES, {"model": CARD.id, "input": "x", "previous_response_id": stored["id"]})
    assert again.status == 200
    assert [turn.text for turn in host.requests[-1].turns] == [MENDED, "Hello", "x"]


@pytest.mark.contract("ERR-003", "ERR-005")
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {**chat(), "stop": HALF}, "stop"),
        (CHAT, {**chat(), "tools": [{"type": "function", "function": {"name": HALF}}]}, "tools[0].function.name"),
        (CHAT, chat({**CHAT_RESULT, "tool_call_id": HALF}), "messages[0].tool_call_id"),
        (RESPONSES, {"input": "x", "metadata": {"a": HALF}}, "metadata.a"),
        (RESPONSES, items({"type": "item_reference", "id": HALF}), "input[0].id"),
        (MESSAGES, {**said(), "stop_sequences": ["x", HALF]}, "stop_sequences[1]"),
        (MESSAGES, said(use({}), {**result("x"), "role": HALF}), "messages[2].role"),
    ],
)
async def test_elsewhere_it_is_refused_with_its_place(path: str, body: Mapping[str, Any], param: str) -> None:
    host = FakeHost()
    answer = await post_json(create_app(host, load_protocols(host)), path, {"model": CARD.id, **body})
    error = answer.json()["error"]
    assert answer.status == 400
    assert error.get("param", error.get("details", {}).get("param")) == param
    assert error["message"].startswith(f"{param}: ")
