"""Parameters of other servers: refused by name where they ask for something, on every protocol and its counts."""

from typing import Any

import attrs
import pytest

from ninfer.protocols.anthropic_messages.wire import MessagesBody
from ninfer.protocols.openai_chat.wire import ChatBody
from ninfer.protocols.openai_responses.wire import ResponsesBody
from ninfer.protocols.other_servers import OTHER_SERVERS
from ninfer.protocols.registry import load_protocols
from ninfer.server.app import create_app
from ninfer.testing import CARD, FakeHost, post_json
from tests.protocols.everywhere import CHAT, COUNTS, MESSAGES, RESPONSES

SAID = [{"role": "user", "content": "Hi"}]
IGNORING: dict[str, dict[str, Any]] = {
    CHAT: {"messages": SAID},
    MESSAGES: {"messages": SAID, "max_tokens": 10},
    COUNTS[MESSAGES]: {"messages": SAID},
}
"""The routes that ignore unknown fields."""
ASKING = (7, False, True, "x", ["x"])
NEUTRAL = (0, 1, -1, False, True, "", [], "auto", None)


def ignored(name: str) -> Any:
    """A value of the parameter that asks for nothing."""
    return next(value for value in NEUTRAL if value is None or OTHER_SERVERS[name][0](value))


def asking(name: str) -> Any:
    """A value of the parameter that asks for something."""
    return next(value for value in ASKING if not OTHER_SERVERS[name][0](value))


async def refused(app: Any, path: str, name: str, value: Any, **members: Any) -> Any:
    answer = await post_json(app, path, {"model": CARD.id, **members, name: value})
    assert answer.status == 400, (name, value)
    error = answer.json()["error"]
    assert error["message"].startswith(f"{name}: ")
    assert error.get("details", error)["param"] == name
    return error


@pytest.mark.contract("D10", "CHAT-030")
@pytest.mark.parametrize("path", IGNORING)
async def test_what_asks_for_something_is_refused_and_what_asks_for_nothing_passes(path: str) -> None:
    host = FakeHost()
    app = create_app(host, load_protocols(host))
    for name in OTHER_SERVERS:
        error = await refused(app, path, name, asking(name), **IGNORING[path])
        assert "is not supported: " in error["message"]
    assert host.requests == []
    body = {"model": CARD.id, **IGNORING[path], **{name: ignored(name) for name in OTHER_SERVERS}}
    assert (await post_json(app, path, body)).status == 200


@pytest.mark.contract("CHAT-036")
@pytest.mark.parametrize(
    ("name", "asks", "neutral"),
    [
        ("repeat_penalty", 1.1, 1.0),
        ("repetition_penalty", 1.1, 1),
        ("dry_multiplier", 0.8, 0.0),
        ("mirostat", 2, 0),
        ("xtc_probability", 0.5, 0),
        ("ignore_eos", True, False),
        ("echo", True, False),
        ("continue_final_message", True, False),
        ("min_tokens", 3, 0),
        ("stop_token_ids", [5], []),
        ("json_schema", {"type": "object"}, {}),
        ("extra_body", {"top_k": 5}, {}),
    ],
)
async def test_what_clients_send(name: str, asks: Any, neutral: Any) -> None:
    host = FakeHost()
    app = create_app(host, load_protocols(host))
    for path, body in IGNORING.items():
        await refused(app, path, name, asks, **body)
        answer = await post_json(app, path, {"model": CARD.id, **body, name: neutral})
        assert answer.status == 200, answer.body
    await refused(app, RESPONSES, name, asks, input="x")


@pytest.mark.contract("D10")
@pytest.mark.parametrize(
    ("path", "name", "asks"),
    [
        (CHAT, "stop_sequences", ["x"]),
        (CHAT, "system", "Be brief."),
        (CHAT, "instructions", "Be brief."),
        (CHAT, "max_output_tokens", 5),
        (CHAT, "thinking", {"type": "enabled"}),
        (CHAT, "reasoning", {"effort": "high"}),
        (MESSAGES, "stop", ["x"]),
        (MESSAGES, "seed", 0),
        (MESSAGES, "min_p", 0.1),
        (MESSAGES, "presence_penalty", 1),
        (MESSAGES, "frequency_penalty", -1),
        (MESSAGES, "reasoning_effort", "low"),
        (MESSAGES, "enable_thinking", False),
        (MESSAGES, "max_completion_tokens", 5),
        (MESSAGES, "parallel_tool_calls", False),
        (MESSAGES, "response_format", {"type": "json_object"}),
    ],
)
async def test_the_names_of_another_protocol_ask_for_something_too(path: str, name: str, asks: Any) -> None:
    host = FakeHost()
    app = create_app(host, load_protocols(host))
    await refused(app, path, name, asks, **IGNORING[path])
    assert host.requests == []


@pytest.mark.parametrize("top_k", [40, -1])
async def test_more_candidates_than_there_are_are_refused(top_k: int) -> None:
    host = FakeHost()
    app = create_app(host, load_protocols(host))
    for path in (CHAT, MESSAGES):
        error = await refused(app, path, "top_k", top_k, **IGNORING[path])
        assert f"expected an integer from 0 to 20, got {top_k}" in error["message"]
    await refused(app, RESPONSES, "top_k", top_k, input="x")


async def test_responses_know_none_of_them() -> None:
    host = FakeHost()
    app = create_app(host, load_protocols(host))
    for name in OTHER_SERVERS:
        error = await refused(app, RESPONSES, name, asking(name), input="x")
        assert error["code"] in ("unknown_parameter", "unsupported_parameter")


@pytest.mark.parametrize("body", [ChatBody, ResponsesBody, MessagesBody])
def test_none_of_them_is_a_name_of_ours(body: type[Any]) -> None:
    assert set(OTHER_SERVERS) & set(attrs.fields_dict(body)) == set()
