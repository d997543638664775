"""The API key and CORS: the header forms by every route, envelopes, what stays open; and the room for bodies."""

import json

import pytest
import trio

from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.server.app import create_app
from ninfer.server.body_room import BodyRoom
from ninfer.server.settings import ServerSettings
from ninfer.testing import CARD, ASGIAnswer, FakeHost, asgi_call, script, until

contract = pytest.mark.contract
KEY = "key-ö-1"

BODY = json.dumps({"model": CARD.id, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}).encode()

PATHS = [
    ("GET", "/v1/models"),
    ("GET", "/v1/v1/models"),
    ("GET", "/v1/models/x"),
    ("GET", "/openapi.json"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/responses/input_tokens"),
    ("GET", "/v1/responses/x"),
    ("DELETE", "/v1/responses/x"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("GET", "/metrics"),
    ("GET", "/v1/health"),
    ("GET", "/health/"),
    ("POST", "/no/such/path"),
    ("OPTIONS", "/v1/chat/completions"),
]
_HOST = [("host", "localhost")]


def app(*, key: str | None = KEY, cors: bool = False) -> object:
    host = FakeHost()
    protocols = (OpenAIChat(host), OpenAIResponses(host), AnthropicMessages(host))
    return create_app(host, protocols, settings=ServerSettings(api_key=key, cors=cors))


async def ask(application: object, method: str, path: str, *headers: tuple[str, str]) -> ASGIAnswer:
    return await asgi_call(application, method, path, BODY if method == "POST" else b"", headers=[*_HOST, *headers])


@contract("AUTH-001", "AUTH-002", "AUTH-003")
@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_every_path_needs_the_key(method: str, path: str) -> None:
    application = app()
    messages = "/messages" in path
    for headers in (
        (),
        (("x-api-key", ""),),
        (("x-api-key", "key"),),
        (("x-api-key", f"{KEY}1"),),
        (("authorization", f"Bearer {KEY[:-1]}"),),
        (("authorization", f"Basic {KEY}"),),
        (("authorization", KEY),),
        (("cookie", f"key={KEY}"),),
    ):
        answer = await ask(application, method, path, *headers)
        assert answer.status == 401, headers
        error = answer.json()["error"]
        assert error["type"] == "authentication_error"
        if not messages:
            assert error["code"] == "invalid_api_key"
        assert answer.headers["request-id" if messages else "x-request-id"]
        assert KEY not in answer.body.decode()
    for headers in (
        (("x-api-key", KEY),),
        (("X-Api-Key", f" {KEY} "),),
        (("authorization", f"Bearer {KEY}"),),
        (("authorization", f"bearer   {KEY}"),),
        (("authorization", "Bearer none"), ("x-api-key", KEY)),
    ):
        assert (await ask(application, method, path, *headers)).status != 401, headers


@contract("AUTH-002")
async def test_absent_and_wrong_look_the_same() -> None:
    application = app()
    absent = await ask(application, "GET", "/v1/models")
    wrong = await ask(application, "GET", "/v1/models", ("x-api-key", "wrong"))
    assert absent.body == wrong.body
    assert absent.headers["www-authenticate"] == "Bearer"


@contract("AUTH-004")
@pytest.mark.parametrize("cors", [False, True])
async def test_what_stays_open(cors: bool) -> None:
    application = app(cors=cors)
    assert (await ask(application, "GET", "/health")).status == 200
    preflight = await ask(
        application,
        "OPTIONS",
        "/v1/messages",
        ("origin", "https://a.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,x-api-key"),
    )
    assert preflight.status == (204 if cors else 200)
    assert preflight.headers.get("access-control-allow-headers") == ("authorization,x-api-key" if cors else None)


async def test_without_a_key_everybody_is_let_in() -> None:
    assert (await ask(app(key=None), "GET", "/v1/models")).status == 200


@contract("AUTH-006")
@pytest.mark.parametrize("cors", [False, True])
async def test_cors_headers(cors: bool) -> None:
    application = app(key=None, cors=cors)
    origin = ("origin", "https://a.example")
    for method, path in (("GET", "/health"), ("POST", "/v1/chat/completions"), ("POST", "/v1/messages"), ("GET", "/x")):
        answer = await ask(application, method, path, origin)
        assert answer.headers.get("access-control-allow-origin") == ("*" if cors else None)
        assert "access-control-allow-credentials" not in answer.headers
        assert any(name.startswith("access-control") for name in answer.headers) is cors


def test_an_empty_key_is_no_key() -> None:
    with pytest.raises(ValueError, match="api_key"):
        ServerSettings(api_key="")
    assert KEY not in repr(ServerSettings(api_key=KEY))


# Room for bodies


@contract("EXEC-014")
async def test_bodies_share_one_room() -> None:
    gate = trio.Event()
    host = FakeHost(steps=[gate, *script("Hi")])
    application = create_app(
        host, (OpenAIChat(host),), settings=ServerSettings(body_room_bytes=len(BODY) + 10, max_request_bytes=10_000)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asgi_call, application, "POST", "/v1/chat/completions", BODY)
        await until(lambda: len(host.requests) == 1)
        refused = await asgi_call(application, "POST", "/v1/chat/completions", BODY)
        assert (refused.status, refused.json()["error"]["code"]) == (429, "server_overloaded")
        assert (await asgi_call(application, "POST", "/v1/chat/completions", b"{}")).status == 400  # small ones pass
        gate.set()
    host.steps = script("Hi")
    assert (await asgi_call(application, "POST", "/v1/chat/completions", BODY)).status == 200
    assert application.asgi_http_class.room.held_bytes == 0


async def test_a_client_that_leaves_gives_its_room_back() -> None:
    host = FakeHost(steps=[3600.0])
    application = create_app(host, (OpenAIChat(host),), settings=ServerSettings(body_room_bytes=len(BODY)))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asgi_call, application, "POST", "/v1/chat/completions", BODY)
            await until(lambda: len(host.requests) == 1)
            scope.cancel()
    host.steps = script("Hi")
    assert (await asgi_call(application, "POST", "/v1/chat/completions", BODY)).status == 200


def test_the_books_of_a_room() -> None:
    room = BodyRoom(10)
    assert room.take(6)
    assert not room.take(5)
    assert room.take(4)
    room.give_back(6)
    assert (room.held_bytes, room.take(6)) == (4, True)
    assert BodyRoom().take(1 << 60)
