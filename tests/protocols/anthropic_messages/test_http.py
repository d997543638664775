"""Messages over HTTP: envelopes, ids and statuses, streams that fail, counts that equal the prompt."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from ninfer.conversation import (
    ContextExceeded,
    EngineUnavailable,
    Forbidden,
    InternalError,
    InvalidRequest,
    NotFound,
    Overloaded,
    QueueTimeout,
    RequestError,
    RequestTooLarge,
    Started,
    TextDelta,
    Unauthenticated,
    Unsupported,
)
from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.anthropic_messages.errors import anthropic_error
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.server.app import create_app
from ninfer.server.settings import ServerSettings
from ninfer.testing import ASGIAnswer, FakeHost, Step, asgi_call, script
from tests.fuzz.house import open_house
from tests.protocols.anthropic_messages.bodies import USER, assistant, body, text, user
from tests.protocols.anthropic_messages.test_encode import parsed

contract = pytest.mark.contract
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"


async def ask(
    host: FakeHost, wire: object, *, path: str = MESSAGES, method: str = "POST", **options: Any
) -> ASGIAnswer:
    """One request; `wire` is JSON unless it is bytes."""
    app = create_app(host, [AnthropicMessages(host), OpenAIChat(host)], settings=ServerSettings(**options))
    return await asgi_call(app, method, path, wire if isinstance(wire, bytes) else json.dumps(wire).encode())


def check_error(answer: ASGIAnswer, status: int, kind: str, code: str) -> None:
    found = answer.json()
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert set(found) == {"type", "error", "request_id"}
    assert found["type"] == "error"
    assert found["error"]["type"] == kind
    assert found["error"]["details"]["error_code"] == code
    assert found["request_id"] == answer.headers["request-id"]
    assert "x-request-id" not in answer.headers


# Envelopes

ERRORS: Sequence[tuple[RequestError, int, str]] = (
    (InvalidRequest("x"), 400, "invalid_request_error"),
    (Unsupported("x"), 400, "invalid_request_error"),
    (ContextExceeded("x"), 400, "invalid_request_error"),
    (RequestTooLarge("x"), 413, "invalid_request_error"),
    (Unauthenticated("x"), 401, "authentication_error"),
    (Forbidden("x"), 403, "permission_error"),
    (NotFound("x"), 404, "not_found_error"),
    (Overloaded("x"), 529, "overloaded_error"),
    (QueueTimeout("x"), 504, "timeout_error"),
    (EngineUnavailable("x"), 503, "api_error"),
    (InternalError("x"), 500, "api_error"),
    (RequestError("x"), 500, "api_error"),
)


@contract("ERR-002", "D34", "ERR-031", "ERR-032", "ERR-007")
@pytest.mark.parametrize(("error", "status", "kind"), ERRORS, ids=[type(one[0]).__name__ for one in ERRORS])
async def test_errors_of_the_request_path(error: RequestError, status: int, kind: str) -> None:
    check_error(await ask(FakeHost(on_enter=[error]), body()), status, kind, error.code)
    check_error(await ask(FakeHost(on_enter=[error]), body(stream=True)), status, kind, error.code)
    check_error(await ask(FakeHost(on_enter=[error]), body(), path=COUNT), status, kind, error.code)


@contract("ERR-005", "D34")
def test_the_place_is_named_beside_the_code() -> None:
    found = anthropic_error(InvalidRequest("model: is wrong", param="model"), "req_1").body
    assert found == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "model: is wrong",
            "details": {"error_code": "invalid_value", "param": "model"},
        },
        "request_id": "req_1",
    }


@contract("ANTH-047", "HTTP-010", "ERR-036", "HTTP-004")
@pytest.mark.parametrize(
    ("method", "path", "wire", "status", "kind", "code"),
    [
        ("GET", MESSAGES, b"", 405, "invalid_request_error", "method_not_allowed"),
        ("DELETE", COUNT, b"", 405, "invalid_request_error", "method_not_allowed"),
        ("POST", "/v1/messages/batches", b"{}", 404, "not_found_error", "not_found"),
        ("POST", MESSAGES, b"{", 400, "invalid_request_error", "invalid_json"),
        ("POST", MESSAGES, b"", 400, "invalid_request_error", "invalid_json"),
        ("POST", COUNT, b"\xff", 400, "invalid_request_error", "invalid_json"),
        ("POST", MESSAGES, b"[]", 400, "invalid_request_error", "invalid_type"),
        ("POST", COUNT, b"{}", 400, "invalid_request_error", "missing_required_parameter"),
        ("POST", MESSAGES, bytes(501), 413, "invalid_request_error", "request_too_large"),
    ],
)
async def test_errors_before_the_request_path(
    method: str, path: str, wire: bytes, status: int, kind: str, code: str
) -> None:
    for prefix in ("", "/v1"):
        answer = await ask(FakeHost(), wire, method=method, path=prefix + path, max_request_bytes=500)
        check_error(answer, status, kind, code)


@contract("D43", "ERR-002")
async def test_a_foreign_host_is_told_in_the_same_envelope() -> None:
    answer = await ask(FakeHost(), body(), allowed_hosts=frozenset({"elsewhere"}))
    check_error(answer, 403, "permission_error", "forbidden_host")


@contract("HTTP-010", "ERR-036")
@pytest.mark.parametrize("path", ["/v1/messagesx", "/v1/nothing", "/v1/chat/completions/x"])
async def test_other_paths_are_not_ours(path: str) -> None:
    answer = await ask(FakeHost(), b"{}", path=path)
    assert answer.json()["error"]["code"] == "not_found"
    assert "x-request-id" in answer.headers
    assert "request-id" not in answer.headers


@contract("ANTH-047", "HTTP-010")
async def test_good_answers_have_an_id_too() -> None:
    answers = [await ask(FakeHost(), wire, path=path) for wire, path in (
        (body(), MESSAGES), (body(stream=True), MESSAGES), (body(), COUNT))]  # fmt: skip
    assert [answer.status for answer in answers] == [200, 200, 200]
    ids = [answer.headers["request-id"] for answer in answers]
    assert len(set(ids)) == 3
    assert not any("x-request-id" in answer.headers for answer in answers)


# Streams


async def stream(steps: Sequence[Step]) -> list[Any]:
    return parsed([(await ask(FakeHost(steps), body(stream=True))).body])


@contract("ERR-002", "D1")
async def test_a_stream_that_fails_ends_with_an_error() -> None:
    steps = [Started(11, 4), TextDelta("x", "answer"), EngineUnavailable("gone")]
    answer = await ask(FakeHost(steps), body(stream=True))
    *_, last = parsed([answer.body])
    assert answer.status == 200
    assert last["type"] == "error"
    assert last["error"]["type"] == "api_error"
    assert last["request_id"] == answer.headers["request-id"]


@contract("ANTH-042")
async def test_the_message_starts_with_the_admission(autojump_clock: trio.testing.MockClock) -> None:
    """Before it there is nothing, so a refusal is a plain answer."""
    refused = await ask(FakeHost([1.0, Overloaded("full")]), body(stream=True))
    check_error(refused, 529, "overloaded_error", "server_overloaded")
    answer = await ask(FakeHost([1.0, Started(11, 4), 2.0, *script("x")[1:]]), body(stream=True))
    (first_s, first), (second_s, _) = answer.parts[:2]
    assert parsed([first])[0]["message"]["usage"]["cache_read_input_tokens"] == 4
    assert second_s - first_s == pytest.approx(2.0)


@contract("ANTH-046")
async def test_the_label_is_echoed_and_selects_nothing() -> None:
    wire = body(model="some/other model")
    assert (await ask(FakeHost(), wire)).json()["model"] == "some/other model"
    first, *_ = parsed([(await ask(FakeHost(), {**wire, "stream": True})).body])
    assert first["message"]["model"] == "some/other model"


@contract("ANTH-043")
async def test_stream_and_aggregate_agree() -> None:
    steps = script("a", "b", reasoning=("h", "m"))
    usage = (await ask(FakeHost(steps), body())).json()["usage"]
    last = (await stream(steps))[-2]["usage"]
    assert {name: usage[name] for name in last} == last


# Counts


@contract("ATOK-001", "ATOK-004")
@pytest.mark.parametrize(
    "members",
    [
        {},
        {"system": "x" * 300},
        {"system": [text("a"), text("b")], "thinking": {"type": "enabled", "budget_tokens": 2048}},
        {"thinking": {"type": "disabled"}, "messages": [USER, assistant(text("so")), user(text("go"), text(" on"))]},
        {"messages": [USER, assistant(text("I con"))]},
    ],
)
async def test_a_count_is_the_input_of_the_message(members: dict[str, object]) -> None:
    """ANT-12."""
    async with open_house() as house:
        app = create_app(house.service, [AnthropicMessages(house.service)])
        wire = json.dumps(body(**members)).encode()
        counted = await asgi_call(app, "POST", COUNT, wire)
        answer = await asgi_call(app, "POST", MESSAGES, wire)
    usage = answer.json()["usage"]
    assert counted.json() == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}
    assert counted.json()["input_tokens"] > 0
