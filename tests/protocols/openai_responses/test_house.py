"""Responses over the real request path and the scripted engine: what is counted, and what a chain renders."""

import base64
import json
from typing import Any

import pytest

from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.server.app import create_app
from ninfer.testing import post_json
from tests.fuzz.house import MODEL, open_house
from tests.protocols.openai_responses.test_routes import events_of

contract = pytest.mark.contract


async def posted(app: Any, path: str, **members: object) -> Any:
    answer = await post_json(app, f"/v1/responses{path}", {"model": MODEL, **members})
    assert answer.status == 200, answer.body
    return answer


@pytest.mark.parametrize(
    "members",
    [
        {"input": "[[say:hello]]"},
        {"input": [{"role": "user", "content": "[[say:hello]]"}], "instructions": "Be brief."},
        {"input": "[[say:hello]]", "reasoning": {"effort": "none"}},
    ],
)
@contract("RTOK-001", "RTOK-004")
async def test_the_count_is_what_creation_uses(members: dict[str, Any]) -> None:
    async with open_house() as house:
        app = create_app(house.service, (OpenAIResponses(house.service),))
        made = (await posted(app, "", **members)).json()
        counted = (await posted(app, "/input_tokens", **members)).json()
        assert counted == {"object": "response.input_tokens", "input_tokens": made["usage"]["input_tokens"]}
        follow = {"input": "[[say:bye]]", "previous_response_id": made["id"]}
        second = (await posted(app, "", **follow)).json()
        again = (await posted(app, "/input_tokens", **follow)).json()
        assert again["input_tokens"] == second["usage"]["input_tokens"] > counted["input_tokens"]
        assert made["output"][-1]["content"][0]["text"].strip() == "hello"


@contract("ROBJ-015", "ROBJ-013")
async def test_reasoning_is_counted_where_it_is_written() -> None:
    async with open_house() as house:
        app = create_app(house.service, (OpenAIResponses(house.service),))
        answer = await posted(app, "", input="[[think]] [[say:done]]", stream=True)
        last = events_of(answer.body)[-1]["response"]
        assert [item["type"] for item in last["output"]] == ["reasoning", "message"]
        usage = last["usage"]
        assert 0 < usage["output_tokens_details"]["reasoning_tokens"] < usage["output_tokens"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


@contract("ERR-012", "RESP-021")
async def test_input_that_does_not_fit() -> None:  # RSP-10
    async with open_house() as house:
        app = create_app(house.service, (OpenAIResponses(house.service),))
        answer = await post_json(app, "/v1/responses", {"model": MODEL, "input": "long " * 5000, "stream": True})
        error = answer.json()["error"]
        assert (answer.status, error["code"]) == (400, "context_length_exceeded")
        assert "4096" in error["message"]


@pytest.mark.parametrize("depth", [99, 101, 210, 400])
@contract("RSTORE-003", "TMPL-006", "ERR-006")
async def test_a_call_however_deep_can_be_kept_and_answered(depth: int) -> None:
    value = "[" * depth + "]" * depth
    markup = f"<tool_call>\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>\n</tool_call>"
    function = {"type": "function", "name": "f", "parameters": {"properties": {"a": {"type": "array"}}}}
    members: dict[str, Any] = {"tools": [function], "reasoning": {"effort": "none"}, "max_output_tokens": 1000}
    asked = f"[[raw:{base64.b64encode(markup.encode()).decode()}]]"
    async with open_house() as house:
        app = create_app(house.service, (OpenAIResponses(house.service),))
        made = (await posted(app, "", input=asked, **members)).json()
        (call,) = made["output"]
        a = json.loads(call["arguments"])["a"]
        assert a == (json.loads(value) if depth < 100 else value)
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "done"}
        history = [{"role": "user", "content": "x"}, call, output]
        for follow in ({"input": [output], "previous_response_id": made["id"]}, {"input": history}):
            assert (await posted(app, "", **members, **follow)).json()["status"] == "completed"
