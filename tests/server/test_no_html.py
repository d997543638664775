"""No answer is HTML, whatever is asked for; wrong base URLs are told the right one; heads and versions have limits."""

import contextlib
import json
from collections.abc import Sequence

import pytest
import trio

from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.protocols.plugin import Protocol
from ninfer.server.app import create_app
from ninfer.server.http1 import HEAD_BYTES
from ninfer.server.settings import ServerSettings
from ninfer.testing import FakeHost, RunningServer, asgi_call, running_server

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "BREW", "get", "A-B.C_1"]
SERVED = [
    "/health", "/openapi.json", "/v1/models", "/v1/models/x", "/v1/chat/completions", "/v1/responses",
    "/v1/responses/x", "/v1/responses/x/input_items", "/v1/responses/x/cancel", "/v1/responses/compact",
    "/v1/responses/input_tokens", "/v1/messages", "/v1/messages/count_tokens",
]  # fmt: skip
ODD = [
    "/", "//", "/v1", "/v1/", "/v1/v1", "/favicon.ico", "/index.html", "/health/", "/v1/chat/completions/",
    "/V1/models", "/v1/%00", "/v1/%ff%fe", "/v1/models/%2e%2e/%2e%2e", "/v1/models//x", "/%", "/;", "/?a=%zz&b",
    "/v1/models?" + "q" * 3000, "/" + "a" * 5000, "/<script>alert(1)</script>", "/v1/responses/x?include=y", "/metrics",
    "*", "http://localhost/v1/models", "http://[/", "localhost:80",
]  # fmt: skip


def protocols(host: FakeHost) -> Sequence[Protocol]:
    return OpenAIChat(host), OpenAIResponses(host), AnthropicMessages(host)


async def spoken(server: RunningServer, head: bytes, body: bytes = b"") -> bytes:
    """All that comes back for one request on a connection of its own."""
    async with await trio.open_tcp_stream(*server.address) as wire:
        await wire.send_all(head + body)
        with trio.fail_after(15):
            return b"".join([piece async for piece in wire])


@pytest.mark.contract("ERR-001", "HTTP-009")
@pytest.mark.parametrize("cors", [False, True])
@pytest.mark.parametrize("key", [None, "k"])
async def test_no_answer_is_html_whatever_is_asked_for(key: str | None, cors: bool) -> None:
    host = FakeHost()
    app = create_app(host, protocols(host), settings=ServerSettings(api_key=key, cors=cors))
    for path in [*SERVED, *("/v1" + path for path in SERVED), *ODD]:
        for method in METHODS:
            answer = await asgi_call(app, method, path, b"{}")
            said = (method, path, answer.status)
            assert answer.status < 500, said
            assert any(name in answer.headers for name in ("x-request-id", "request-id")), said
            assert answer.headers.get("content-type", "none") == ("application/json" if answer.body else "none"), said
            if answer.body:
                json.loads(answer.body)
            if answer.status == 405:
                assert answer.headers["allow"], said


async def test_no_answer_over_a_socket_is_html() -> None:
    host = FakeHost()
    async with running_server(host, protocols(host)) as server:
        for method in (*METHODS, "CONNECT"):
            for path in (*SERVED[:6], *(path for path in ODD if " " not in path)):
                head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
                received = await spoken(server, head.encode())
                answered, _, body = received.partition(b"\r\n\r\n")
                assert answered.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4")), (method, path, received)
                assert b"html" not in answered.lower(), (method, path)
                assert b"request-id: req_" in answered
                assert (b"content-type: application/json" in answered) or not body, (method, path)


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/chat/completions", "/v1/responses/x"])
async def test_options_tell_the_methods_and_no_type(path: str) -> None:
    host = FakeHost()
    answer = await asgi_call(create_app(host, protocols(host)), "OPTIONS", path)
    assert (answer.status, answer.body, "content-type" in answer.headers) == (200, b"", False)
    allowed = answer.headers["allow"].split(", ")
    assert "OPTIONS" in allowed
    assert ("POST" in allowed) is (path == "/v1/chat/completions")


# Base URLs


@pytest.mark.contract("HTTP-003")
@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", "/", "http://box:8080/v1 for OpenAI clients and http://box:8080 for Anthropic ones"),
        ("POST", "/", "http://box:8080/v1 for OpenAI clients"),
        ("GET", "/v1", "http://box:8080/v1 for OpenAI clients"),
        ("GET", "/v1/", "http://box:8080/v1 for OpenAI clients"),
        ("POST", "/chat/completions", "answers at /v1/chat/completions, so the base URL is http://box:8080/v1"),
        ("POST", "/responses", "answers at /v1/responses, so the base URL is http://box:8080/v1"),
        ("GET", "/responses/resp_1", "answers at /v1/responses/resp_1,"),
        ("POST", "/messages", "answers at /v1/messages,"),
        ("GET", "/models", "answers at /v1/models,"),
        ("GET", "/models/a/b", "answers at /v1/models/a/b,"),
        ("POST", "/completions", None),
        ("GET", "/favicon.ico", None),
        ("POST", "/v1/chat", None),
    ],
)
async def test_a_wrong_base_url_is_told_the_right_one(method: str, path: str, said: str | None) -> None:
    host = FakeHost()
    app = create_app(host, protocols(host))
    answer = await asgi_call(app, method, path, headers=[("host", "box:8080")])
    message = answer.json()["error"]["message"]
    assert answer.status == 404
    assert ("base URL" in message) is (said is not None)
    assert said is None or said in message


# Heads


@pytest.mark.parametrize("pieces", [1, 2, 40])
@pytest.mark.parametrize(("more", "status"), [(0, b"200"), (1, b"431"), (HEAD_BYTES, b"431")])
@pytest.mark.parametrize("where", ["header", "target", "many headers"])
async def test_a_head_has_64_kib(where: str, more: int, status: bytes, pieces: int) -> None:
    form = {
        "header": "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx: %s\r\n\r\n",
        "target": "GET /health?%s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        "many headers": "GET /health HTTP/1.1\r\nhost: localhost\r\n" + "a: b\r\n" * 9000
        + "connection: close\r\nx: %s\r\n\r\n",
    }[where]  # fmt: skip
    head = (form % ("m" * (HEAD_BYTES + more - len(form % "")))).encode()
    assert len(head) == (1 << 16) + more
    size = -(-len(head) // pieces)
    async with running_server(FakeHost()) as server, await trio.open_tcp_stream(*server.address) as wire:
        for at in range(0, len(head), size):
            try:
                await wire.send_all(head[at : at + size])
            except trio.BrokenResourceError:
                break
        received = b""
        with trio.fail_after(5), contextlib.suppress(trio.BrokenResourceError):  # closed with more of ours on its way
            while piece := await wire.receive_some(1000):
                received += piece
        assert received.startswith(b"HTTP/1.1 " + status)
        assert (b'"invalid_http"' in received) is (status != b"200")


# Versions


@pytest.mark.parametrize(
    ("version", "status"),
    [(b"1.0", b"200"), (b"1.1", b"200"), (b"0.9", b"505"), (b"1.2", b"505"), (b"2.0", b"505"), (b"9.9", b"505")],
)
async def test_versions(version: bytes, status: bytes) -> None:
    host = FakeHost()
    async with running_server(host) as server:
        for method, path, body in ((b"GET", b"/health", b""), (b"POST", b"/v1/chat/completions", b"{}")):
            head = b"%s %s HTTP/%s\r\nhost: localhost\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            received = await spoken(server, head % (method, path, version, len(body)), body)
            assert received.startswith(b"HTTP/1.1 " + (status if method == b"GET" or status == b"505" else b"400"))
            assert received.count(b"HTTP/1.1") - received.count(b"HTTP/1.1 and") == 1
            assert b"x-request-id: req_" in received
