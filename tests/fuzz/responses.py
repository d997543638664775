"""OpenAI Responses as a target: valid bodies of many forms, the words of the route, and what its answers owe."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.protocols.openai_responses.decode import decode
from ninfer.protocols.openai_responses.order import OrderChecker
from ninfer.protocols.openai_responses.store import ResponseStore
from tests.fuzz.driver import Target
from tests.fuzz.house import MODEL
from tests.fuzz.verdict import MANNERED, check_error

WORDS = (
    "model", "input", "instructions", "type", "message", "role", "user", "assistant", "system", "developer", "content",
    "input_text", "output_text", "text", "refusal", "reasoning", "reasoning_text", "summary", "summary_text", "id",
    "encrypted_content", "function_call", "function_call_output", "call_id", "name", "arguments", "output", "namespace",
    "tools", "function", "parameters", "strict", "tool_choice", "auto", "none", "required", "allowed_tools", "stream",
    "store", "temperature", "top_p", "max_output_tokens", "metadata", "previous_response_id", "include", "effort",
    "truncation", "disabled", "background", "service_tier", "item_reference", "input_image", "status", "completed",
    "prompt_cache_key", "web_search", "format", "json_schema", "verbosity", "parallel_tool_calls", "conversation",
)  # fmt: skip


def body(given: Any, **fields: Any) -> dict[str, Any]:
    """A body."""
    return {"model": MODEL, "input": given, "max_output_tokens": 6, **fields}


def message(role: str, content: Any, **members: Any) -> dict[str, Any]:
    """A message Item."""
    return {"type": "message", "role": role, "content": content, **members}


TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "Weather of a place.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": False,
    }
]
BODIES: list[dict[str, Any]] = [
    body("Tell me about tides, please. " * 3),
    body("Why?", instructions="Answer in one word.", stream=True, temperature=0.5, top_p=0.9, store=False),
    body([message("user", [{"type": "input_text", "text": "one "}, {"type": "input_text", "text": "two"}])]),
    body([{"role": "user", "content": "No type"}], metadata={"a": "b"}, user="someone", service_tier="auto",
         truncation="disabled", background=False, parallel_tool_calls=True, stream=True),
    body(
        [
            message("user", "What is 2 + 2?"),
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "easy"}]},
            message("assistant", [{"type": "output_text", "text": "4", "annotations": []}], status="completed"),
            message("user", "And 3 + 3? ☂ 你好"),
        ],
        stream=True,
        include=["reasoning.encrypted_content"],
        reasoning={"summary": "auto"},
    ),
    body("[[think]] [[say:done]]", max_output_tokens=4000, stream=True, store=False),
    body("Weather?", tools=TOOLS, tool_choice="auto", stream=True),
    body(
        [
            message("user", "Weather?"),
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city":"Oslo"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "cold"},
        ],
        tools=TOOLS,
        prompt_cache_key="k",
    ),
    body("Nothing, thank you.", max_output_tokens=0, text={"format": {"type": "text"}}),
]  # fmt: skip


def check_answer(status: int, headers: Mapping[str, str], answer: bytes) -> None:
    """Assert that an answer is whole, in the right envelope, in order, and no fault of ours."""
    assert status in MANNERED, f"{status}: {answer[:300]!r}"
    assert headers["x-request-id"]
    if headers["content-type"].startswith("text/event-stream"):
        assert status == 200
        check_stream(answer)
        return
    assert headers["content-type"] == "application/json"
    read = json.loads(answer)
    if status == 200:
        assert read["object"] == "response"
        assert read["status"] in ("completed", "incomplete")
    else:
        check_error(read)


def check_stream(answer: bytes) -> None:
    """Assert that the strictest reader would take the events."""
    blocks = answer.decode().split("\n\n")
    assert blocks.pop() == ""
    checker = OrderChecker()
    for block in blocks:
        if not block.startswith(":"):
            name, data = block.split("\n")
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            if event["type"] == "response.failed":
                assert event["response"]["error"]["code"] not in ("internal_error", "server_error"), event
            checker.take(event)
    checker.end()


RESPONSES = Target(
    protocol=OpenAIResponses,
    path="/v1/responses",
    bodies=BODIES,
    words=WORDS,
    check=check_answer,
    decode=partial(decode, shelf=ResponseStore(max_records=1, max_bytes=1)),
)
