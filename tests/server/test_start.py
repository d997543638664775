"""While the model is being loaded: /health says so, and nothing else is answered but by what refuses for good."""

import pytest

from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.server.app import create_app
from ninfer.server.settings import ServerSettings
from ninfer.testing import FakeHost, asgi_call, post_json


async def test_health_says_that_it_starts_and_then_that_it_is_ready() -> None:
    host = FakeHost(starting=True, accepts_work=False)
    app = create_app(host, [])
    answer = await asgi_call(app, "GET", "/health")
    assert (answer.status, answer.json()) == (503, {"status": "starting"})
    host.starting, host.accepts_work = False, True
    answer = await asgi_call(app, "GET", "/health")
    assert (answer.status, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", "/v1/chat/completions", ("error", "code")),
        ("POST", "/v1/v1/chat/completions", ("error", "code")),
        ("POST", "/v1/responses", ("error", "code")),
        ("GET", "/v1/responses/resp_1", ("error", "code")),
        ("POST", "/v1/messages", ("error", "details", "error_code")),
        ("POST", "/v1/messages/count_tokens", ("error", "details", "error_code")),
        ("GET", "/v1/models", ("error", "code")),
        ("GET", "/openapi.json", ("error", "code")),
        ("GET", "/nowhere", ("error", "code")),
    ],
)
async def test_all_else_is_refused_in_the_envelope_of_its_path(method: str, path: str, code: tuple[str, ...]) -> None:
    host = FakeHost(starting=True)
    app = create_app(host, [OpenAIChat(host), OpenAIResponses(host), AnthropicMessages(host)])
    answer = await asgi_call(app, method, path, b"{" if method == "POST" else None)
    found = answer.json()
    for name in code:
        found = found[name]
    assert (answer.status, found, answer.headers["retry-after"]) == (503, "service_unavailable", "5")
    assert host.requests == []


async def test_a_foreign_host_and_a_missing_key_are_refused_before() -> None:
    """These clients need not try again."""
    host = FakeHost(starting=True)
    locked = create_app(host, [], settings=ServerSettings(api_key="secret"))
    assert (await asgi_call(locked, "GET", "/v1/models")).status == 401
    named = create_app(host, [], settings=ServerSettings(allowed_hosts=frozenset({"localhost"})))
    answer = await asgi_call(named, "GET", "/v1/models", headers=[("host", "evil.example")])
    assert answer.status == 403


async def test_requests_are_served_from_then_on() -> None:
    host = FakeHost(starting=True)
    app = create_app(host, [OpenAIChat(host)])
    body = {"model": host.model.id, "messages": [{"role": "user", "content": "Hi"}]}
    assert (await post_json(app, "/v1/chat/completions", body)).status == 503
    host.starting = False
    assert (await post_json(app, "/v1/chat/completions", body)).status == 200
