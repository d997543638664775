"""What real clients have sent: accepted and answered, but for what is invalid on purpose or not built yet."""

import json
from pathlib import Path
from typing import Any

import pytest

from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_chat.order import OrderChecker
from ninfer.server.app import create_app
from ninfer.testing import FakeHost, asgi_call, script, sse_data

contract = pytest.mark.contract
DATA = Path(__file__).parents[2] / "data" / "client_requests"


def recorded(folder: Path) -> list[Any]:
    files = [(path, json.loads(path.read_text())) for path in sorted(folder.glob("*/*.json"))]
    return [
        pytest.param(found, id=f"{path.parent.name}/{path.stem}")
        for path, found in files
        if found["path"].endswith("/chat/completions")
    ]


def expected_refusal(found: Any) -> str | None:
    """The code with which the request is refused, as far as its own fields tell."""
    body = found["body"]
    if "deliberately invalid" in found["notes"] or body.get("temperature") == "hot" or "" in (body.get("stop") or []):
        return "invalid"
    tools = [tool.get("function", {}) for tool in body.get("tools", [])]
    forced = body.get("tool_choice") not in (None, "auto", "none")
    limited = body.get("parallel_tool_calls") is False and tools
    strict = any(tool.get("strict") for tool in tools)
    if forced or limited or strict or body.get("response_format", {}).get("type") not in (None, "text"):
        return "unsupported_parameter"
    return "vision_disabled" if "image_url" in json.dumps(body["messages"]) else None


async def check(found: Any) -> None:
    host = FakeHost(script("Hel", "lo", reasoning=["hm"]))
    app = create_app(host, [OpenAIChat(host)])
    body = {**found["body"], "model": host.model.id}
    answer = await asgi_call(app, "POST", found["path"], json.dumps(body).encode())
    refused = expected_refusal(found)
    if refused:
        assert answer.status == 400, answer.body
        assert answer.json()["error"]["code"] == refused or refused == "invalid"
    elif body.get("stream"):
        assert answer.status == 200, answer.body
        checker = OrderChecker()
        for data in sse_data(answer.body):
            checker.add(data if data == "[DONE]" else json.loads(data))
        checker.finish()
    else:
        assert answer.status == 200, answer.body
        assert answer.json()["choices"][0]["finish_reason"] == "stop"


@contract("CHAT-032", "CHAT-033", "D10", "D33")
@pytest.mark.parametrize("found", recorded(DATA))
async def test_a_recorded_request(found: Any) -> None:
    await check(found)


@contract("CHAT-032", "CHAT-033")
async def test_all_that_was_recorded(shared: Path) -> None:
    requests = recorded(shared / "data" / "client_requests")
    assert len(requests) > 50
    for one in requests:
        await check(one.values[0])
