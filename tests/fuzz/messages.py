"""Anthropic Messages as a target: valid bodies of many forms, the words of the route, and what its answers owe."""

import json
from collections.abc import Mapping
from typing import Any

from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.anthropic_messages.decode import decode
from tests.fuzz.driver import Target
from tests.fuzz.house import MODEL
from tests.fuzz.verdict import MANNERED, check_message

WORDS = (
    "model", "messages", "role", "content", "type", "text", "user", "assistant", "system", "max_tokens", "stream",
    "stop_sequences", "temperature", "top_p", "top_k", "tools", "name", "input_schema", "tool_choice", "auto", "any",
    "tool", "none", "tool_use", "tool_result", "tool_use_id", "id", "input", "is_error", "thinking", "signature",
    "redacted_thinking", "data", "enabled", "disabled", "adaptive", "budget_tokens", "display", "cache_control",
    "ephemeral", "ttl", "image", "source", "document", "metadata", "output_config", "effort", "mcp_servers",
    "container", "defer_loading", "tool_reference", "server_tool_use", "chat_template_kwargs",
)  # fmt: skip


def user(content: Any) -> dict[str, Any]:
    """A message of the user."""
    return {"role": "user", "content": content}


def body(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A body."""
    return {"model": MODEL, "max_tokens": 6, "messages": list(messages) or [user("Hello")], **fields}


TOOLS = [
    {
        "name": "get_weather",
        "description": "Weather of a place.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]
BODIES: list[dict[str, Any]] = [
    body(user("Tell me about tides, please. " * 3)),
    body(user([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]), stream=True),
    body(user("Why?"), system="Answer in one word.", temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["\n\n"]),
    body(
        user("Why not?"),
        system=[{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral", "ttl": "5m"}}],
        metadata={"user_id": "someone"},
        service_tier="auto",
        stream=True,
    ),
    body(
        user("What is 2 + 2?"),
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "easy", "signature": ""},
                                          {"type": "text", "text": "4"}]},
        user("And 3 + 3? ☂ 你好"),
        thinking={"type": "adaptive", "display": "omitted"},
    ),
    body(user("[[think]] [[say:done]]"), thinking={"type": "enabled", "budget_tokens": 2048}, max_tokens=4096,
         stream=True),
    body(user("Begin."), {"role": "assistant", "content": "It was a"}, stream=True),
    body(user("Hi"), user("there"), user("Go on."),
         thinking={"type": "disabled"}, something_new={"deep": [1, {"er": None}]}),
    body(user("Weather?"), tools=TOOLS, tool_choice={"type": "auto"}, stream=True),
    body(
        user("Weather?"),
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "t1",
                                           "name": "get_weather", "input": {"city": "Oslo"}}]},
        user([{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "cold"}]},
              {"type": "text", "text": "And now?"}]),
        tools=TOOLS,
    ),
]  # fmt: skip


def check_answer(status: int, headers: Mapping[str, str], answer: bytes) -> None:
    """Assert that an answer is whole, in Anthropic's envelope, and no fault of ours."""
    assert status in MANNERED, f"{status}: {answer[:300]!r}"
    assert headers["request-id"]
    if headers["content-type"].startswith("text/event-stream"):
        assert status == 200
        check_stream(answer)
        return
    assert headers["content-type"] == "application/json"
    read = json.loads(answer)
    if status == 200:
        assert (read["type"], read["role"]) == ("message", "assistant")
        assert read["stop_reason"] in ("end_turn", "max_tokens", "stop_sequence")
    else:
        check_error(read)


def check_error(answer: Any) -> None:
    """Assert that this is an error in Anthropic's envelope, and the caller's fault."""
    assert set(answer) == {"type", "error", "request_id"}
    assert answer["type"] == "error"
    error = answer["error"]
    assert error["type"] != "api_error", error
    check_message(error["message"], error["details"].get("param"))


def check_stream(answer: bytes) -> None:
    """Assert that events are named as their data says, and that one of the two ends is there."""
    blocks = answer.decode().split("\n\n")
    assert blocks.pop() == ""
    events = []
    for block in blocks:
        if not block.startswith(":"):
            name, data = block.split("\n")
            events.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {events[-1]['type']}"
    assert events[0]["type"] in ("message_start", "error")
    if events[-1]["type"] == "error":
        check_error(events[-1])
    else:
        assert [event["type"] for event in events].count("message_stop") == 1
        assert events[-1]["type"] == "message_stop"


MESSAGES = Target(
    protocol=AnthropicMessages,
    path="/v1/messages",
    bodies=BODIES,
    words=WORDS,
    check=check_answer,
    decode=decode,
)
