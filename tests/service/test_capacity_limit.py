"""A reply that grows as long as the KV memory allows ends there as `length` does, whichever protocol asks for it."""

import json
from typing import Any

import pytest

from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.server.app import create_app
from ninfer.testing import CARD, asgi_call, post_json, sse_data
from tests.fakes.device import FakeDevice
from tests.fakes.service import choose_letter, open_service

PAGES = 2
SAYS = 2 * 64 + 1 - 100
"""Behind a prompt of 100 tokens; the last token of a reply needs no memory."""
USER: dict[str, Any] = {"role": "user", "content": "x" * 100}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": CARD.id, "messages": [USER], "max_tokens": 500},
    "/v1/responses": {"model": CARD.id, "input": [USER], "max_output_tokens": 500},
    "/v1/messages": {"model": CARD.id, "messages": [USER], "max_tokens": 500},
}


def ends(path: str, data: list[Any]) -> tuple[str, int]:
    """How an answer says that it ended, and how many tokens it counts; `data` is the body, or a stream's events."""
    if path == "/v1/responses":
        response = data[-1].get("response", data[-1])
        assert response["status"] == "incomplete"
        return response["incomplete_details"]["reason"], response["usage"]["output_tokens"]
    if path == "/v1/messages":
        last = data[-2] if len(data) > 1 else data[0]
        return last.get("delta", last)["stop_reason"], last["usage"]["output_tokens"]
    reasons = [choice["finish_reason"] for piece in data for choice in piece["choices"] if choice["finish_reason"]]
    (used,) = [piece["usage"]["completion_tokens"] for piece in data if piece.get("usage")]
    return reasons[0], used


@pytest.mark.contract("KV-014")
@pytest.mark.parametrize("stream", [False, True], ids=["aggregate", "stream"])
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/v1/chat/completions", "length"),
        ("/v1/responses", "max_output_tokens"),
        ("/v1/messages", "model_context_window_exceeded"),
    ],
)
async def test_a_reply_ends_where_the_memory_ends(path: str, reason: str, stream: bool) -> None:
    async with open_service(FakeDevice(total_pages=PAGES, choose=choose_letter)) as house:
        protocols = (OpenAIChat(house.service), OpenAIResponses(house.service), AnthropicMessages(house.service))
        app = create_app(house.service, protocols)
        options: dict[str, Any] = {"stream": stream}
        if stream and path == "/v1/chat/completions":
            options["stream_options"] = {"include_usage": True}
        answer = await asgi_call(app, "POST", path, json.dumps({**BODIES[path], **options}).encode())
        assert answer.status == 200
        data = [json.loads(one) for one in sse_events(answer.body)] if stream else [answer.json()]
        assert ends(path, data) == (reason, SAYS)
        assert house.engine.figures().resident_requests == 0


@pytest.mark.contract("KV-014", "ERR-012")
@pytest.mark.parametrize("path", BODIES)
async def test_a_prompt_beyond_the_memory_is_refused_before_any_work(path: str) -> None:
    async with open_service(FakeDevice(total_pages=PAGES, choose=choose_letter)) as house:
        protocols = (OpenAIChat(house.service), OpenAIResponses(house.service), AnthropicMessages(house.service))
        body = json.loads(json.dumps(BODIES[path]).replace("x" * 100, "x" * 129))
        answer = await post_json(create_app(house.service, protocols), path, body)
        assert answer.status == 400
        assert "129 tokens" in answer.json()["error"]["message"]
        assert house.engine.figures().prefilled_tokens == 0


def sse_events(body: bytes) -> list[str]:
    """The data of a stream's events, without event names and the end mark."""
    lines = [line for line in body.decode().splitlines() if not line.startswith("event: ")]
    return [data for data in sse_data("\n".join(lines).encode()) if data != "[DONE]"]
