"""A client that leaves takes its socket with it, also where no request is under way that could be cancelled."""

import json

import pytest
import trio

from ninfer.conversation import Started, TextDelta
from ninfer.testing import CARD, FakeHost, Step, finished, running_server

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


async def test_bytes_behind_a_request_keep_no_socket() -> None:
    """The server reads nothing while they wait, so it learns of the departure by writing."""
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
