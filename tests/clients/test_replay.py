"""What real clients have sent, over HTTP through the whole house: answered, or refused for a reason that has a name."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from ninfer.testing import sse_data
from tests.clients.house import CLIENT_S, ScriptedServer, scripted_server

DATA = Path(__file__).parents[1] / "data" / "client_requests"
MOST_TOKENS = 40
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")

INVALID = "is invalid on purpose"
ELSEWHERE = "names what another server stored"
FORCED = "forces, restricts or counts calls"
STRICT = "wants arguments by their schema"
FORMAT = "wants a format"
CUSTOM = "has a free-form tool on Responses"
MEDIA = "has a picture"
REFUSALS = {
    # reason -> codes; the middle ones wait for constrained output (D40)
    INVALID: {"invalid_value", "invalid_type", "model_not_found", "unknown_parameter", "unsupported_parameter"},
    ELSEWHERE: {"response_not_found", "item_not_found"},
    FORCED: {"unsupported_parameter"},
    STRICT: {"unsupported_parameter"},
    FORMAT: {"unsupported_parameter"},
    CUSTOM: {"unsupported_parameter"},
    MEDIA: {"vision_disabled"},
}


def reasons(found: Any) -> set[str]:
    """Why a request may be refused, by its own fields."""
    body, path = found["body"] or {}, found["path"]
    text = json.dumps(body)
    may = {
        INVALID: "deliberately invalid" in found["notes"] or "" in body.get("stop_sequences", []),
        ELSEWHERE: bool(body.get("previous_response_id"))
        or '"item_reference"' in text
        or ("/responses/" in path and "input_tokens" not in path),
        FORCED: _choice(body.get("tool_choice")) not in ("auto", "none")
        or (body.get("parallel_tool_calls") is False and bool(body.get("tools"))),
        STRICT: '"strict": true' in text,
        FORMAT: any(
            _kind(given) not in (None, "text")
            for given in (
                body.get("response_format"),
                (body.get("text") or {}).get("format"),
                (body.get("output_config") or {}).get("format"),
            )
        ),
        CUSTOM: path.endswith("/responses") and any(tool["type"] == "custom" for tool in body.get("tools") or ()),
        MEDIA: any(f'"type": "{kind}"' in text for kind in ("image", "image_url", "input_image")),
    }
    return {reason for reason, applies in may.items() if applies}


def _choice(given: Any) -> Any:
    return given.get("type") if isinstance(given, dict) else given or "auto"


def _kind(given: Any) -> Any:
    return given.get("type") if isinstance(given, dict) else None


async def replayed(client: httpx.AsyncClient, server: ScriptedServer, found: Any) -> str | None:
    """Send one request; what is wrong with the answer, if anything."""
    body = found["body"]
    if isinstance(body, dict):
        if body.get("model") not in (None, "no-such-model"):
            body["model"] = server.model
        # A thinking budget needs the limit that it was sent with.
        if (body.get("thinking") or {}).get("type") != "enabled":
            body |= {name: min(body[name], MOST_TOKENS) for name in LIMITS if body.get(name)}
    answer = await client.request(
        found["method"],
        found["path"].replace("stub-model", server.model),
        params=found["query"],
        headers={name: value for name, value in found["headers"].items() if name != "accept-encoding"},
        content=None if body is None else json.dumps(body, ensure_ascii=False).encode(),
    )
    if answer.status_code >= 500:
        return f"{answer.status_code}: {answer.text[:300]}"
    if answer.status_code >= 400:
        error = answer.json()["error"]
        code = error.get("code") or error["details"]["error_code"]
        allowed = {code for reason in reasons(found) for code in REFUSALS[reason]}
        return None if code in allowed else f"refused with {code}: {error['message']}"
    if isinstance(body, dict) and body.get("stream"):
        return _stream_fault(found["path"], answer.text)
    return None if answer.json() else "an empty answer"


def _stream_fault(path: str, text: str) -> str | None:
    """The server has judged the order of the events already: what is left is that the end is a good one."""
    unnamed = "\n".join(line for line in text.split("\n") if not line.startswith("event: "))
    datas = sse_data(unnamed.encode())
    if "chat" in path:
        return None if datas[-1] == "[DONE]" else datas[-1]
    last = json.loads(datas[-1])["type"]
    return None if last in ("message_stop", "response.completed", "response.incomplete") else datas[-1]


def recorded(folder: Path) -> dict[str, Any]:
    """Name -> request."""
    files = sorted(folder.glob("*/[0-9]*.json"))
    return {f"{file.parent.name}/{file.name}": json.loads(file.read_text(encoding="utf-8")) for file in files}


async def faults_of(requests: dict[str, Any], wide_artifact: Path) -> list[str]:
    """What is wrong with the answers."""
    faults: list[str] = []
    async with (
        scripted_server(wide_artifact) as server,
        httpx.AsyncClient(base_url=server.base_url, timeout=CLIENT_S) as client,
    ):
        for name, found in requests.items():
            with trio.fail_after(CLIENT_S):
                fault = await replayed(client, server, found)
            if fault is not None:
                faults.append(f"{name}: {fault}")
    return faults


@pytest.mark.contract("D10", "D24", "D26", "D33")
async def test_requests_that_lie_here(wide_artifact: Path) -> None:
    requests = recorded(DATA)
    assert len(requests) > 60
    assert not await faults_of(requests, wide_artifact)


async def test_all_requests_that_were_recorded(shared: Path, wide_artifact: Path) -> None:
    requests = recorded(shared / "data" / "client_requests")
    assert len(requests) > 150
    assert not await faults_of(requests, wide_artifact)
