"""One reply on every protocol, streamed and not, in words that all share: what a client gets of text and calls.

The scripted engine says what the user's text asks for; prompt, reply and protocols are the real ones.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

import attrs

from ninfer.protocols.anthropic_messages.fold import MessageFold
from ninfer.protocols.registry import load_protocols
from ninfer.server.app import create_app
from ninfer.testing import post_json, sse_data
from tests.fuzz.house import MODEL, open_house

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COUNTS = {RESPONSES: "/v1/responses/input_tokens", MESSAGES: "/v1/messages/count_tokens"}

Schema = Mapping[str, Any]


@attrs.frozen
class Said:
    """A reply: its text, and its calls as (name, arguments)."""

    text: str
    calls: tuple[tuple[str, Any], ...]


def raw(text: str) -> str:
    """The user's text that makes the model say exactly `text`."""
    return f"[[raw:{base64.b64encode(text.encode()).decode()}]] x"


async def said(user: str, tools: Mapping[str, Schema | None], **members: Any) -> Said:
    """What the model says to `user` with these tools (name -> schema of its arguments), the same on all protocols."""
    empty = {"type": "object"}
    functions = [{"name": name, **({} if schema is None else {"parameters": schema})} for name, schema in tools.items()]
    turn = [{"role": "user", "content": user}]
    bodies: dict[str, dict[str, Any]] = {
        CHAT: {
            "messages": turn,
            "tools": [{"type": "function", "function": one} for one in functions],
            "enable_thinking": False,
            "max_tokens": 900,
        },
        RESPONSES: {
            "input": turn,
            "tools": [{"type": "function", **one} for one in functions],
            "reasoning": {"effort": "none"},
            "max_output_tokens": 900,
        },
        MESSAGES: {
            "messages": turn,
            "tools": [{"name": name, "input_schema": schema or empty} for name, schema in tools.items()],
            "thinking": {"type": "disabled"},
            "max_tokens": 900,
        },
    }
    found: dict[str, Said] = {}
    async with open_house() as house:
        app = create_app(house.service, load_protocols(house.service))
        for path, body in bodies.items():
            for stream in (False, True):
                asked = {"model": MODEL, **body, **members, "stream": stream}
                answer = await post_json(app, path, asked)
                assert answer.status == 200, answer.body
                found[f"{path} {stream=}"] = _READ[path](answer.body, stream)
    assert len(set(map(repr, found.values()))) == 1, found
    return next(iter(found.values()))


def _chat(body: bytes, stream: bool) -> Said:
    if not stream:
        message = json.loads(body)["choices"][0]["message"]
        return Said(message["content"] or "", _chat_calls(message.get("tool_calls", [])))
    chunks = [json.loads(data) for data in sse_data(body) if data != "[DONE]"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    return Said("".join(delta.get("content") or "" for delta in deltas), _chat_calls(calls))


def _chat_calls(calls: list[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls)


def _events(body: bytes) -> list[Any]:
    return [json.loads(line.removeprefix("data: ")) for line in body.decode().split("\n") if line.startswith("data: ")]


def _responses(body: bytes, stream: bool) -> Said:
    response = _events(body)[-1]["response"] if stream else json.loads(body)
    texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    return Said("".join(texts), tuple((call["name"], json.loads(call["arguments"])) for call in calls))


def _messages(body: bytes, stream: bool) -> Said:
    message: Any
    if stream:
        fold = MessageFold()
        for event in _events(body):
            fold.add(event)
        message = fold.message()
    else:
        message = json.loads(body)
    texts = [block["text"] for block in message["content"] if block["type"] == "text"]
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    return Said("".join(texts), tuple((call["name"], call["input"]) for call in calls))


_READ = {CHAT: _chat, RESPONSES: _responses, MESSAGES: _messages}
