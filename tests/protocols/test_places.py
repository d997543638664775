"""Refusals from below the protocols name their place too, in `param` and in the message (ERR-005)."""

from collections.abc import Mapping
from typing import Any

import pytest

from ninfer.conversation import InvalidRequest
from ninfer.protocols.registry import load_protocols
from ninfer.server.app import create_app
from ninfer.testing import CARD, FakeHost, post_json
from tests.fuzz.house import MODEL, open_house
from tests.protocols.everywhere import CHAT, COUNTS, MESSAGES, RESPONSES

USER = {"role": "user", "content": "Hi"}
ASSISTANT = {"role": "assistant", "content": "So"}
LONG = {"role": "user", "content": "x " * 9000}


def place(error: Mapping[str, Any]) -> tuple[Any, Any]:
    details = error.get("details", error)
    return details.get("error_code", details.get("code")), details.get("param")


@pytest.mark.contract("ERR-005", "ERR-011", "ERR-012")
@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (CHAT, {"messages": [USER, ASSISTANT], "enable_thinking": True}, ("invalid_prompt", "messages[1]")),
        (CHAT, {"messages": [USER, ASSISTANT]}, ("invalid_prompt", "messages[1]")),  # the template thinks by default
        (RESPONSES, {"input": [USER, ASSISTANT]}, ("invalid_prompt", "input[1]")),
        (CHAT, {"messages": [USER, LONG]}, ("context_length_exceeded", "messages")),
        (RESPONSES, {"input": [LONG]}, ("context_length_exceeded", "input")),
        (MESSAGES, {"messages": [LONG]}, ("context_length_exceeded", "messages")),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_of_a_prompt(path: str, body: dict[str, Any], expected: tuple[str, str], stream: bool) -> None:
    async with open_house() as house:
        app = create_app(house.service, load_protocols(house.service))
        answer = await post_json(app, path, {"model": MODEL, **body, "stream": stream})
    error = answer.json()["error"]
    assert (answer.status, place(error)) == (400, expected)
    assert error["message"].startswith(f"{expected[1]}: ")


@pytest.mark.contract("ERR-005", "ERR-015")
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": [USER], "max_tokens": 5}, "max_tokens"),
        (CHAT, {"messages": [USER], "max_completion_tokens": 5}, "max_completion_tokens"),
        (CHAT, {"messages": [USER]}, None),
        (RESPONSES, {"input": "x", "max_output_tokens": 5}, "max_output_tokens"),
        (MESSAGES, {"messages": [USER], "max_tokens": 5}, "max_tokens"),
        (
            MESSAGES,
            {"messages": [USER], "max_tokens": 5, "thinking": {"type": "enabled", "budget_tokens": 1024}},
            "thinking.budget_tokens",
        ),
    ],
)
async def test_a_limit_without_room_for_thinking(path: str, body: dict[str, Any], param: str | None) -> None:
    host = FakeHost(on_enter=[InvalidRequest("no room", code="thinking_budget_capacity_insufficient")])
    answer = await post_json(create_app(host, load_protocols(host)), path, {"model": CARD.id, **body})
    error = answer.json()["error"]
    assert place(error) == ("thinking_budget_capacity_insufficient", param)
    assert error["message"] == ("no room" if param is None else f"{param}: no room")


@pytest.mark.contract("ERR-005")
@pytest.mark.parametrize(("path", "body"), [(RESPONSES, {"input": "x"}), (MESSAGES, {"messages": [USER]})])
async def test_counts_name_it_as_well(path: str, body: dict[str, Any]) -> None:
    host = FakeHost(on_enter=[InvalidRequest("no", code="invalid_prompt")])
    answer = await post_json(create_app(host, load_protocols(host)), COUNTS[path], {"model": CARD.id, **body})
    assert place(answer.json()["error"]) == ("invalid_prompt", next(iter(body)))


async def test_a_place_that_is_known_stays() -> None:
    host = FakeHost(on_enter=[InvalidRequest("stop: no", code="invalid_prompt", param="stop")])
    answer = await post_json(create_app(host, load_protocols(host)), CHAT, {"model": CARD.id, "messages": [USER]})
    assert answer.json()["error"] == {
        "message": "stop: no",
        "type": "invalid_request_error",
        "param": "stop",
        "code": "invalid_prompt",
    }
