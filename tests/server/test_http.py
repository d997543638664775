"""HTTP itself, over loopback sockets and at the application: limits, ids, envelopes, departures, socket options."""

import json
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from ninfer.conversation import RequestError
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.plugin import Call, Route
from ninfer.server.app import create_app
from ninfer.server.settings import ServerSettings
from ninfer.testing import CARD, FakeHost, RunningServer, asgi_call, post_json, running_server, script, until

CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
CHAT = "/v1/chat/completions"
BODY = {"model": CARD.id, "messages": [{"role": "user", "content": "Hi"}]}


class Crash(OpenAIChat):
    """Chat whose other route fails."""

    def routes(self) -> Any:
        return (*super().routes(), Route("POST", "/v1/crash", self.crash))

    async def crash(self, call: Call) -> None:
        raise ZeroDivisionError


def client(server: RunningServer, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.base_url, trust_env=False, **options)


# Request ids and envelopes


@pytest.mark.contract("HTTP-009", "ERR-036", "ERR-001")
async def test_every_answer_has_an_id_of_its_own_and_no_answer_is_html() -> None:
    host = FakeHost()
    app = create_app(host, [Crash(host)], settings=ServerSettings(max_request_bytes=1000))
    asked: list[tuple[str, str, bytes, int, str | None]] = [
        ("GET", "/health", b"", 200, None),
        ("GET", "/v1/models", b"", 200, None),
        ("HEAD", "/v1/models", b"", 200, None),
        ("GET", "/v1/models/none", b"", 404, "model_not_found"),
        ("POST", CHAT, json.dumps(BODY).encode(), 200, None),
        ("POST", CHAT, json.dumps({**BODY, "stream": True}).encode(), 200, None),
        ("POST", CHAT, b"{", 400, "invalid_json"),
        ("POST", CHAT, json.dumps({**BODY, "model": "x"}).encode(), 404, "model_not_found"),
        ("POST", CHAT, bytes(1001), 413, "request_too_large"),
        ("POST", "/v1/crash", b"{}", 500, "internal_error"),
        ("GET", CHAT, b"", 405, "method_not_allowed"),
        ("DELETE", "/health", b"", 405, "method_not_allowed"),
        ("GET", "/", b"", 404, "not_found"),
        ("POST", "/v1/complétions/%00", b"", 404, "not_found"),
        ("GET", CHAT + "/", b"", 404, "not_found"),
    ]
    ids = []
    for method, path, body, status, code in asked:
        answer = await asgi_call(app, method, path, body)
        assert answer.status == status, (method, path)
        assert "html" not in answer.headers["content-type"]
        ids.append(answer.headers["x-request-id"])
        if code is not None:
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
            assert answer.json()["error"]["code"] == code
    assert len(set(ids)) == len(ids)
    assert all(ids)


@pytest.mark.contract("HTTP-004", "HTTP-003")
async def test_the_doubled_prefix_is_the_same_route() -> None:
    host = FakeHost()
    app = create_app(host, [OpenAIChat(host)])
    for body in (BODY, {**BODY, "temperature": 9}):
        plain, doubled = await post_json(app, CHAT, body), await post_json(app, f"/v1{CHAT}", body)
        assert doubled.status == plain.status
        assert doubled.headers.keys() == plain.headers.keys()
        if plain.status != 200:
            assert doubled.json() == plain.json()


# The size limit


@pytest.mark.contract("HTTP-017", "ERR-014")
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_refused_unread(chunked: bool) -> None:
    host = FakeHost()
    async with (
        running_server(host, settings=ServerSettings(max_request_bytes=1 << 20)) as server,
        client(server) as http,
    ):

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(40):
                yield bytes(1 << 16)

        # Not JSON at all: were it parsed, the answer would be 400.
        answer = await http.post(CHAT, content=pieces() if chunked else bytes(40 << 16))
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "request_too_large"
        assert "1048576 bytes" in answer.json()["error"]["message"]
        assert (await http.post(CHAT, json=BODY)).status_code == 200
    assert len(host.requests) == 1


@pytest.mark.contract("HTTP-017")
async def test_a_body_at_the_limit_is_read() -> None:
    host = FakeHost()
    app = create_app(host, [OpenAIChat(host)], settings=ServerSettings(max_request_bytes=2 << 20))
    text = "x" * (2 << 20)
    body = json.dumps({**BODY, "user": text[: (2 << 20) - len(json.dumps({**BODY, "user": ""}))]}).encode()
    assert len(body) == 2 << 20
    assert (await asgi_call(app, "POST", CHAT, body)).status == 200
    assert (await asgi_call(app, "POST", CHAT, body + b" ")).status == 413


@pytest.mark.contract("HTTP-017")
async def test_a_body_that_never_ends_delays_the_refusal_only(autojump_clock: trio.testing.MockClock) -> None:
    app = create_app(FakeHost(), [OpenAIChat(FakeHost())], settings=ServerSettings(max_request_bytes=10))
    begin_s = trio.current_time()
    answer = await asgi_call(app, "POST", CHAT, bytes(11), unfinished=True)
    assert (answer.status, round(trio.current_time() - begin_s)) == (413, 5)


@pytest.mark.contract("EXEC-014")
async def test_a_body_of_which_nothing_comes_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    app = create_app(FakeHost(), [OpenAIChat(FakeHost())], settings=ServerSettings(body_room_bytes=1000))
    begin_s = trio.current_time()
    answer = await asgi_call(app, "POST", CHAT, bytes(1000), unfinished=True)
    error = answer.json()["error"]
    assert (answer.status, error["code"], error["param"]) == (400, "body_timeout", None)
    assert round(trio.current_time() - begin_s) == 75 + 5  # what may still come of it is waited for
    assert (await post_json(app, CHAT, BODY)).status == 200  # there is room again


# Connections


@pytest.mark.contract("HTTP-013")
async def test_accepted_sockets_have_keepalive_and_a_time_limit() -> None:
    async with running_server(FakeHost()) as server, client(server) as http:
        await http.get("/health")
        (accepted,) = server.connections.streams
        sock = accepted.socket
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5


@pytest.mark.contract("HTTP-014")
async def test_the_limits_of_accepted_sockets_find_a_dead_peer_within_20_seconds() -> None:
    """Silent or in the middle of a write; tests/server/test_dead_peers.py pulls the cable."""
    async with running_server(FakeHost()) as server, client(server) as http:
        await http.get("/health")
        (accepted,) = server.connections.streams

        def option(name: int) -> int:
            return accepted.socket.getsockopt(socket.IPPROTO_TCP, name)

        silence_s = option(socket.TCP_KEEPIDLE) + option(socket.TCP_KEEPINTVL) * option(socket.TCP_KEEPCNT)
        assert 0 < silence_s <= 20
        # A write that nobody acknowledges; the first is the keep-alive comment that follows on five silent seconds.
        assert 0 < ServerSettings().keep_alive_s + option(socket.TCP_USER_TIMEOUT) / 1000 <= 20


@pytest.mark.parametrize("stream", [False, True])
async def test_a_connection_is_closed_when_the_client_asks_for_it(stream: bool) -> None:
    async with running_server(FakeHost()) as server:
        body = json.dumps({**BODY, "stream": stream}).encode()
        async with await trio.open_tcp_stream(*server.address) as wire:
            await wire.send_all(request_bytes(body, "connection: close\r\n"))
            with trio.fail_after(2):
                received = b"".join([piece async for piece in wire])
        assert b"200" in received.split(b"\r\n", 1)[0]
        assert received.endswith(b"0\r\n\r\n" if stream else b"}")
        await until(lambda: len(server.connections) == 0)


async def test_a_connection_serves_many_requests() -> None:
    async with running_server(FakeHost()) as server, client(server) as http:
        for stream in (False, True, True, False):
            assert (await http.post(CHAT, json={**BODY, "stream": stream})).status_code == 200
        assert len(server.connections) == 1


async def test_large_headers_are_read_however_they_arrive() -> None:
    async with running_server(FakeHost()) as server, await trio.open_tcp_stream(*server.address) as wire:
        request = request_bytes(json.dumps(BODY).encode(), f"x-metadata: {'m' * 30_000}\r\nconnection: close\r\n")
        for at in range(0, len(request), 4000):
            await wire.send_all(request[at : at + 4000])
        assert (await wire.receive_some(12)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("wrong", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 100])
async def test_what_is_no_http_ends_its_own_connection_only(wrong: bytes) -> None:
    async with running_server(FakeHost()) as server:
        async with await trio.open_tcp_stream(*server.address) as wire:
            await wire.send_all(wrong)
            await wire.send_eof()
            with trio.fail_after(2):
                assert b"HTTP/1.1 200" not in b"".join([piece async for piece in wire])
        async with client(server) as http:
            assert (await http.get("/health")).status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        "upgrade: websocket\r\nconnection: Upgrade, close\r\nsec-websocket-version: 13\r\n"
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nhello",
        "upgrade: websocket\r\nconnection: upgrade, close\r\n\r\n",  # no valid handshake
        "upgrade: h2c\r\nconnection: upgrade, http2-settings, close\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n",
    ],
)
async def test_no_other_protocol_is_spoken(change: str) -> None:
    async with running_server(FakeHost()) as server:
        for path, status in ((CHAT, b"405"), ("/health", b"200")):
            async with await trio.open_tcp_stream(*server.address) as wire:
                await wire.send_all(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{change}".encode())
                with trio.fail_after(2):
                    received = b"".join([piece async for piece in wire])
                assert received.startswith(b"HTTP/1.1 " + status)
                assert b"x-request-id: req_" in received


async def test_a_body_of_two_lengths_is_the_last_of_its_connection() -> None:
    # Somebody before us may have gone by the other length: what follows may be a request that nobody has sent.
    body = b"2\r\n{}\r\n0\r\n\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-length: %d\r\n\r\n" % len(body))
    async with running_server(FakeHost()) as server, await trio.open_tcp_stream(*server.address) as wire:
        await wire.send_all(head + body)
        with trio.fail_after(2):
            received = b"".join([piece async for piece in wire])
        assert received.count(b"HTTP/1.1 400") == 1
        assert b'{"status":"ok"}' not in received


async def test_http2_is_not_spoken() -> None:
    # Its flow control would let a client keep whole answers in our memory, and its connections had no idle clock.
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
    async with running_server(FakeHost()) as server, await trio.open_tcp_stream(*server.address) as wire:
        await wire.send_all(preface)
        with trio.fail_after(2):
            received = b"".join([piece async for piece in wire])
        assert received.startswith(b"HTTP/1.1 505")


@pytest.mark.contract("HTTP-009", "ERR-001")
@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        (b"GET /health\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 200_000, 431),
        (b"POST /health HTTP/1.1\r\nhost: a\r\ncontent-length: -5\r\n\r\n", 400),
        (b"POST /health HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 501),
        (CHUNKED + b"zz\r\n", 400),
        (CHUNKED + b"1;" + b"a" * 200_000, 431),
    ],
)
async def test_what_is_no_http_is_told_so(wrong: bytes, status: int) -> None:
    async with running_server(FakeHost()) as server, await trio.open_tcp_stream(*server.address) as wire:
        with trio.fail_after(5):
            await wire.send_all(wrong)
            received = b"".join([piece async for piece in wire])
        head, _, body = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d" % status)
        assert head.lower().count(b"x-request-id: req_") == 1
        error = json.loads(body)["error"]
        assert (error["code"], error["type"], error["param"]) == ("invalid_http", "invalid_request_error", None)


async def test_requests_may_follow_each_other_unasked() -> None:
    async with running_server(FakeHost()) as server, await trio.open_tcp_stream(*server.address) as wire:
        await wire.send_all(
            b"GET /health HTTP/1.1\r\nhost: a\r\n\r\nGET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        )
        with trio.fail_after(2):
            received = b"".join([piece async for piece in wire])
        assert received.count(b'{"status":"ok"}') == 2


def request_bytes(body: bytes, headers: str = "") -> bytes:
    return f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


# Departures


@pytest.mark.contract("HTTP-016")
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("stream", [False, True], ids=["aggregate", "stream"])
@pytest.mark.parametrize("begun", [False, True], ids=["waiting", "generating"])
async def test_a_client_that_leaves_ends_its_request(reset: bool, stream: bool, begun: bool) -> None:
    steps = [*(script("Hello")[:-1] if begun else []), trio.Event()]
    host = FakeHost(steps=steps)
    async with running_server(host) as server:
        wire = await trio.open_tcp_stream(*server.address)
        await wire.send_all(request_bytes(json.dumps({**BODY, "stream": stream}).encode()))
        await until(lambda: host.open_generations == 1)
        if begun and stream:
            await wire.receive_some(10)
        if reset:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await wire.aclose()
        await until(lambda: host.left == 1)
        await until(lambda: len(server.connections) == 0)
        assert len(server.running) == 0


@pytest.mark.contract("D21")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_half_closed_connection_counts_as_gone(stream: bool) -> None:
    host = FakeHost(steps=[*script("Hello")[:-1], trio.Event()])
    async with running_server(host) as server:
        async with await trio.open_tcp_stream(*server.address) as wire:
            await wire.send_all(request_bytes(json.dumps({**BODY, "stream": stream}).encode()))
            await until(lambda: host.open_generations == 1)
            await wire.send_eof()
            await until(lambda: host.left == 1)
            with trio.fail_after(2):
                assert b"[DONE]" not in b"".join([piece async for piece in wire])
        await until(lambda: len(server.connections) == 0)


# The stop


async def test_a_stop_refuses_new_connections_and_ends_the_running_ones() -> None:
    host = FakeHost(steps=[*script("Hello")[:-1], trio.Event()])
    answers: dict[bool, httpx.Response] = {}

    async def ask(http: httpx.AsyncClient, stream: bool) -> None:
        answers[stream] = await http.post(CHAT, json={**BODY, "stream": stream})

    async with running_server(host) as server, client(server) as http, trio.open_nursery() as nursery:
        nursery.start_soon(ask, http, False)
        nursery.start_soon(ask, http, True)
        await until(lambda: host.open_generations == 2)
        await trio.testing.wait_all_tasks_blocked(0.05)  # the stream's first frame has left
        begin_s = trio.current_time()
        server.stop.ask()
        await until(lambda: len(answers) == 2)
        assert trio.current_time() - begin_s < 0.9  # well within the grace
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream(*server.address)
    assert answers[False].status_code == 503
    assert answers[False].json()["error"]["code"] == "service_unavailable"
    assert answers[True].status_code == 200
    assert answers[True].text.rstrip().splitlines()[-1].endswith('"code":"service_unavailable"}}')


async def test_a_client_that_never_reads_does_not_hold_the_stop() -> None:
    host = FakeHost(steps=script(*["x" * 60_000] * 400))
    async with running_server(host, settings=ServerSettings(grace_s=0.3)) as server:
        with socket.create_connection(server.address) as wire:
            wire.sendall(request_bytes(json.dumps({**BODY, "stream": True}).encode()))
            await until(lambda: host.left == 1)
            await trio.testing.wait_all_tasks_blocked(0.2)
            assert (host.left, len(server.connections)) == (1, 1)  # the handler has not waited for the client
            server.stop.ask()
            await until(lambda: len(server.connections) == 0, at_most_s=3)
    assert host.open_generations == 0


async def test_an_error_keeps_its_kind_over_http() -> None:
    error = RequestError("odd")
    host = FakeHost(on_enter=[error])
    assert (await post_json(create_app(host, [OpenAIChat(host)]), CHAT, BODY)).status == 500


@pytest.mark.parametrize("target", ["", "?a=b", "http://[x", "http://localhost", "*"])
async def test_targets_without_a_path_find_nothing(target: str) -> None:
    answer = await asgi_call(create_app(FakeHost(), ()), "GET", target)
    assert answer.status == 404
    assert answer.json()["error"]["code"] == "not_found"
