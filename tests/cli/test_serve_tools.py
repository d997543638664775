"""A server process with a key, judged streams and tolerant calls, driven by the official client through a tool loop."""

import base64
import json
import signal
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.cli.test_serve import served

OPTIONS = (
    *("--engine", "scripted", "--max-context", "2048", "--max-concurrency", "2"),
    *("--api-key", "local-key", "--cors", "--check-events", "--tolerant-tool-calls", "--no-prefill-8bit-pv"),
)
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
]
CALL = '[[call:get_weather {"days": 3, "city": "Rome"}]]'


def client(base_url: str, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key=key, max_retries=0, timeout=30)


@pytest.mark.contract("AUTH-001", "OPT-003", "OPT-064", "D16")
def test_a_server_with_all_of_it(golden_chat_artifact: Path, tmp_path: Path) -> None:
    with served(golden_chat_artifact, tmp_path, *OPTIONS) as process:
        with client(process.base_url, "other") as stranger, pytest.raises(openai.AuthenticationError):
            stranger.models.list()
        with client(process.base_url, "local-key") as sdk:
            raw = sdk.models.with_raw_response.list()
            assert raw.headers["access-control-allow-origin"] == "*"
            two_steps(sdk, process.model)
            recovered(sdk, process.model)
        status, errors = process.end(signal.SIGTERM)
    assert status == 0
    assert "recovered from damaged markup: 1 (truncated_tail" in errors
    assert "local-key" not in errors


def two_steps(sdk: openai.OpenAI, model: str) -> None:
    """A call, its result, the answer; streamed."""
    messages: list[Any] = [{"role": "user", "content": CALL}]
    with sdk.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as events:
        first = events.get_final_completion().choices[0]
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls or []
    assert call.function.arguments == '{"days":3,"city":"Rome"}'
    messages += [
        first.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "warm"},
    ]
    second = sdk.chat.completions.create(model=model, messages=messages, tools=TOOLS).choices[0]
    assert (second.message.content, second.finish_reason) == ("Tool said: warm", "stop")


def recovered(sdk: openai.OpenAI, model: str) -> None:
    """A call with a suffix that does not belong there."""
    markup = (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call> Done."
    )
    text = f"[[raw:{base64.b64encode(markup.encode()).decode()}]]"
    answer = sdk.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": text}],
        tools=TOOLS,
        extra_body={"enable_thinking": False},
    ).choices[0]
    (call,) = answer.message.tool_calls or []
    assert json.loads(call.function.arguments) == {"city": "Oslo"}  # type: ignore[union-attr]
