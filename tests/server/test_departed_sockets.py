"""A client that leaves takes its socket with it, also where no request is under way that could be cancelled."""

import json
import socket
import struct

import pytest
import trio

from ninfer.conversation import Started, TextDelta
from ninfer.testing import CARD, FakeHost, Step, finished, running_server, until

BODY = json.dumps({"model": CARD.id, "messages": [{"role": "user", "content": "Hello"}]}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(BODY)
SOON_S = 2.0
"""Far below the time that an idle connection may live."""


@pytest.mark.contract("D21")
@pytest.mark.parametrize(
    "sent",
    [b"", b"P", HEAD[:40], HEAD, HEAD + BODY[:20], b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"],
    ids=["nothing", "one byte", "half a head", "a head", "half a body", "a request that was answered"],
)
@pytest.mark.parametrize("half", [False, True], ids=["closed", "half-closed"])
async def test_the_socket_goes_with_the_client(sent: bytes, half: bool) -> None:
    async with running_server(FakeHost()) as server:
        stream = await trio.open_tcp_stream(*server.address)
        async with stream:
            await stream.send_all(sent)
            answer = b""
            while sent.startswith(b"GET") and b"}" not in answer:
                answer += await stream.receive_some()
            if half:
                await stream.send_eof()
            else:
                await stream.aclose()
            with trio.fail_after(SOON_S):
                await server.connections.wait_until_none()
            assert len(server.connections) == 0


@pytest.mark.contract("HTTP-016")
@pytest.mark.parametrize("stream", [False, True], ids=["aggregate", "stream"])
@pytest.mark.parametrize(
    "behind",
    [b"\r\n", b"x", b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", bytes(3 << 20)],
    ids=["an empty line", "a letter", "a request", "more than anybody reads"],
)
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_departure_behind_unread_bytes_ends_the_request(behind: bytes, stream: bool, reset: bool) -> None:
    """Nothing is written meanwhile that could fail: the request waits for its first token."""
    host = FakeHost(steps=[Started(1, 0), trio.Event()])
    body = json.dumps({**json.loads(BODY), "stream": stream}).encode()
    head = HEAD.replace(b"%d" % len(BODY), b"%d" % len(body))
    async with running_server(host) as server:
        wire = await trio.open_tcp_stream(*server.address)
        await wire.send_all(head + body)
        await until(lambda: host.open_generations == 1)
        with trio.move_on_after(0.2):  # what the server does not read, its client cannot send
            await wire.send_all(behind)
        assert host.open_generations == 1
        if reset:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await wire.aclose()
        await until(lambda: host.left == 1, at_most_s=SOON_S)
        await until(lambda: len(server.connections) == 0, at_most_s=SOON_S)


async def test_bytes_behind_a_request_keep_no_socket() -> None:
    steps: list[Step] = [Started(1, 0)]
    for _ in range(200):
        steps += [TextDelta("more", "answer"), 0.01]
    host = FakeHost(steps=[*steps, finished()])
    body = json.dumps({**json.loads(BODY), "stream": True}).encode()
    head = HEAD.replace(b"%d" % len(BODY), b"%d" % len(body))
    async with running_server(host) as server:
        stream = await trio.open_tcp_stream(*server.address)
        async with stream:
            await stream.send_all(head + body + b"\r\nGET /he")
            while b"more" not in await stream.receive_some():
                pass
        with trio.fail_after(SOON_S):
            await server.connections.wait_until_none()
    assert (host.open_generations, host.left) == (0, 1)
