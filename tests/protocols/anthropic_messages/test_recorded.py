"""What real clients have sent: accepted and answered, but for what is invalid on purpose or not built yet."""

import json
from pathlib import Path
from typing import Any

import pytest

from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.anthropic_messages.decode import decode
from ninfer.protocols.anthropic_messages.order import OrderChecker
from ninfer.server.app import create_app
from ninfer.testing import FakeHost, asgi_call, script
from tests.protocols.anthropic_messages.test_encode import parsed

contract = pytest.mark.contract
DATA = Path(__file__).parents[2] / "data" / "client_requests"
REFUSED = {
    # what the request is about -> code
    "forces a call": "unsupported_parameter",
    "wants a format": "unsupported_parameter",
    "has a picture": "vision_disabled",
    "is invalid on purpose": "invalid_value",
}


def recorded(folder: Path) -> list[Any]:
    files = [(path, json.loads(path.read_text())) for path in sorted(folder.glob("*/*.json"))]
    return [
        pytest.param(found, id=f"{path.parent.name}/{path.stem}")
        for path, found in files
        if found["path"].removeprefix("/v1/v1").removeprefix("/v1").startswith("/messages")
    ]


def expected_refusal(found: Any) -> str | None:
    """Why the request is refused, as far as its own fields tell."""
    body = found["body"]
    if "deliberately invalid" in found["notes"] or "" in body.get("stop_sequences", []):
        return "is invalid on purpose"
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        return "forces a call"
    if body.get("output_config", {}).get("format"):
        return "wants a format"
    return "has a picture" if '"type": "image"' in json.dumps(body) else None


async def check(found: Any) -> None:
    host = FakeHost(script("Hel", "lo", reasoning=["hm"]))
    app = create_app(host, [AnthropicMessages(host)])
    query = f"?{found['query']}" if found["query"] else ""
    answer = await asgi_call(app, "POST", found["path"] + query, json.dumps(found["body"]).encode())
    refused = expected_refusal(found)
    if refused:
        assert answer.status == 400
        assert answer.json()["error"]["details"]["error_code"] == REFUSED[refused]
    elif found["path"].endswith("count_tokens"):
        assert answer.json() == {"input_tokens": host.counted}
    elif found["body"].get("stream"):
        checker = OrderChecker()
        for event in parsed([answer.body]):
            checker.add(event)
        checker.finish()
    else:
        assert answer.json()["stop_reason"] == "end_turn"


@contract("ANTH-045", "D10")
@pytest.mark.parametrize("found", recorded(DATA))
async def test_a_recorded_request(found: Any) -> None:
    await check(found)


@contract("ANTH-045")
async def test_all_that_was_recorded(shared: Path) -> None:
    requests = recorded(shared / "data" / "client_requests")
    assert len(requests) > 50
    for one in requests:
        await check(one.values[0])


def load(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())["body"]


@contract("ANTH-008", "D24", "D25", "ANTH-034")
def test_claude_code_after_a_tool_search() -> None:
    wire = load("claude-code/07")
    call = decode(wire)
    turns = call.request.turns
    assert not call.show_thinking
    assert not turns[0].text.startswith("x-anthropic-billing-header:")
    assert [turn.role for turn in turns] == ["system", "user", "system", "assistant", "tool"]
    names = [tool.name for tool in call.request.tools]
    assert {"WebFetch", "NotebookEdit"} <= set(names)
    assert "DeferredToolPlaceholder" not in names
    assert "WebFetch" in turns[-1].text
    assert "NotebookEdit" in turns[-1].text


@contract("D36")
def test_claude_code_sends_its_environment_as_an_array_and_then_as_a_string() -> None:
    wire = load("claude-code/07")
    at = next(at for at, message in enumerate(wire["messages"]) if message["role"] == "system")
    words = wire["messages"][at]["content"]
    assert isinstance(words, str)
    string = decode(wire).request
    wire["messages"][at]["content"] = [{"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}]
    array = decode(wire).request
    assert [turn.text for turn in array.turns] == [turn.text for turn in string.turns]
