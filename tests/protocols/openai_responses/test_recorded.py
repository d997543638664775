"""What real clients have sent: accepted and answered, but for what is not built or what was stored elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest

from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.protocols.openai_responses.decode import decode
from ninfer.server.app import create_app
from ninfer.testing import CARD, FakeHost, asgi_call, script
from tests.protocols.openai_responses.shelf import assistant, new_store, reasoning, stored, user
from tests.protocols.openai_responses.test_routes import events_of

contract = pytest.mark.contract
DATA = Path(__file__).parents[2] / "data" / "client_requests"


def recorded(folder: Path) -> list[Any]:
    files = [(path, json.loads(path.read_text())) for path in sorted(folder.glob("*/*.json"))]
    return [
        pytest.param(found, id=f"{path.parent.name}/{path.stem}")
        for path, found in files
        if found["path"].startswith("/v1/responses")
    ]


def expected_refusal(body: Any) -> tuple[str, str] | None:
    """Code and param of the refusal, as far as the request's own fields tell."""
    tools = body.get("tools") or []
    if (body.get("text") or {}).get("format", {}).get("type", "text") != "text":
        return "unsupported_parameter", "text.format"
    for at, tool in enumerate(tools):
        if tool["type"] == "custom":
            return "unsupported_parameter", f"tools[{at}].type"
        if tool.get("strict"):
            return "unsupported_parameter", f"tools[{at}].strict"
    if body.get("tool_choice", "auto") not in ("auto", "none"):
        return "unsupported_parameter", "tool_choice"
    if tools and body.get("parallel_tool_calls") is False:
        return "unsupported_parameter", "parallel_tool_calls"
    if body.get("previous_response_id"):
        return "response_not_found", "previous_response_id"
    for at, item in enumerate(body["input"]):
        if item == "item_reference" or (isinstance(item, dict) and item.get("type") == "item_reference"):
            return "item_not_found", f"input[{at}].id"
        for where in ("content", "output"):
            parts = item.get(where) if isinstance(item, dict) else None
            for n, part in enumerate(parts if isinstance(parts, list) else ()):
                if part["type"] == "input_image":
                    return "vision_disabled", f"input[{at}].{where}[{n}]"
    return None


async def check(found: Any) -> None:
    host = FakeHost(script("Hel", "lo", reasoning=["hm"]))
    app = create_app(host, [OpenAIResponses(host)])
    if found["method"] != "POST":
        answer = await asgi_call(app, found["method"], found["path"])
        assert answer.json()["error"]["code"] == "response_not_found"
        return
    body = {**found["body"], "model": CARD.id}
    answer = await asgi_call(app, "POST", found["path"], json.dumps(body).encode())
    refused = expected_refusal(body)
    if refused:
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == refused
        assert answer.status == (404 if error["code"] == "response_not_found" else 400)
        return
    assert answer.status == 200, answer.body
    if found["path"].endswith("input_tokens"):
        assert answer.json()["input_tokens"] == host.counted
    elif body.get("stream"):
        assert events_of(answer.body)[-1]["type"] == "response.completed"
    else:
        assert answer.json()["status"] == "completed"
    hosted = [tool["type"] for tool in body.get("tools") or [] if tool["type"] not in ("function", "namespace")]
    assert answer.headers.get("x-ninfer-ignored-tools", "") == ", ".join(hosted)


@contract("RESP-001", "RESP-028", "D10", "D26")
@pytest.mark.parametrize("found", recorded(DATA))
async def test_a_recorded_request(found: Any) -> None:
    await check(found)


@contract("RESP-001", "D10")
async def test_all_that_was_recorded(shared: Path) -> None:
    requests = recorded(shared / "data" / "client_requests")
    assert len(requests) > 50
    for one in requests:
        await check(one.values[0])


def load(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())["body"]


@contract("RITEM-022", "RITEM-023", "RITEM-021")
def test_codex_calls_a_namespace() -> None:
    call = decode(load("codex/08"), new_store())
    made = call.request.turns[-2].calls[0]
    assert made.name == "multi_agent_v1__spawn_agent"
    assert made.name in [tool.name for tool in call.request.tools]
    assert call.table.origin(made.name) == ("multi_agent_v1", "spawn_agent")


@contract("D28", "RESP-024")
def test_codex_replays_reasoning() -> None:
    call = decode(load("codex/05"), new_store())
    assert call.request.turns[-2].reasoning == "Let me think about that."
    assert (call.summary, call.request.thinking.effort, call.mirrors_reasoning) == ("detailed", "high", True)


@contract("D28")
@pytest.mark.parametrize("name", ["opencode/04", "vercel-ai-sdk/18", "vercel-ai-sdk/19"])
def test_reasoning_that_comes_back_as_our_mirror_alone(name: str) -> None:
    turns = decode(load(name), new_store()).request.turns
    assert [turn.reasoning for turn in turns if turn.reasoning] == ["Let me think about that."]


@contract("D29")
def test_item_references_of_the_vercel_sdk() -> None:
    store = new_store()
    wire = load("vercel-ai-sdk/17")
    output = [reasoning("hm", id=wire["input"][1]["id"]), assistant([], id=wire["input"][2]["id"])]
    store.put(stored("resp_1", input=[user("q")], output=output))
    turns = decode(wire, store).request.turns
    assert [(turn.role, turn.reasoning) for turn in turns] == [("user", None), ("assistant", "hm"), ("user", None)]
