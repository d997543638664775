"""A client that leaves takes its socket with it, also where no request is under way that could be cancelled."""

import json

import pytest
import trio

from tests.fakes.host import CARD, FakeHost
from tests.fakes.server import running_server

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
