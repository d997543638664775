"""The memory of a body is free with its refusal, and not with some later collection of what forms circles."""

import gc
import json
import tracemalloc

import pytest
import trio

from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.server.settings import ServerSettings
from ninfer.testing import CARD, FakeHost, running_server, until

MIB = 1 << 20
TEXT = "y" * 1000


def of_messages(role: object) -> bytes:
    messages = [{"role": role, "content": TEXT}] * (4 * MIB // len(TEXT))
    return json.dumps({"model": CARD.id, "messages": messages}).encode()


@pytest.mark.parametrize(
    ("body", "settings", "status"),
    [
        (bytes(4 * MIB), ServerSettings(max_request_bytes=3 * MIB), b"413"),
        (b"[" + b" " * 4 * MIB, ServerSettings(), b"400"),
        (bytes(4 * MIB), ServerSettings(body_room_bytes=3 * MIB), b"429"),
        (of_messages("nobody"), ServerSettings(), b"400"),
        (of_messages("user").replace(CARD.id.encode(), b"another"), ServerSettings(), b"404"),
    ],
    ids=["too large", "no JSON", "no room", "not understood", "not found"],
)
async def test_a_refused_body_is_gone_with_its_answer(body: bytes, settings: ServerSettings, status: bytes) -> None:
    host = FakeHost()
    chunks = [body[at : at + (1 << 16)] for at in range(0, len(body), 1 << 16)]
    async with (
        running_server(host, [OpenAIChat(host)], settings=settings) as server,
        await trio.open_tcp_stream(*server.address) as wire,
    ):
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            await wire.send_all(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            for chunk in chunks:
                await wire.send_all(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await wire.send_all(b"0\r\n\r\n")
            received = b"".join([piece async for piece in wire])
            await wire.aclose()
            await until(lambda: len(server.connections) == 0)
            held_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert received.startswith(b"HTTP/1.1 " + status)
    assert held_bytes < MIB
