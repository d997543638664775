"""What clients have not read yet: counted, bounded, and of no weight for places."""

import json
import socket
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.plugin import Call, Route
from ninfer.reply import ReplyTokens
from ninfer.server.settings import ServerSettings
from ninfer.server.unread import READ_BYTES, Unread, UnreadRoom
from ninfer.service import ServiceSettings
from ninfer.testing import CARD, FakeHost, RunningServer, running_server, script, until
from tests.fakes.device import FakeDevice
from tests.fakes.service import choose_letter, open_service

MIB = 1 << 20


def request(path: str = "/v1/chat/completions", **members: object) -> bytes:
    body = {"model": CARD.id, "messages": [{"role": "user", "content": "Hi"}], "stream": True, **members}
    content = json.dumps(body).encode()
    return (
        b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(content)) + content
    )


async def slow_client(server: RunningServer, sent: bytes) -> trio.SocketStream:
    """A client whose system takes next to nothing for it, so that what it does not read waits in the server."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
    raw.connect(server.address)
    raw.setblocking(False)
    wire = trio.SocketStream(trio.socket.from_stdlib_socket(raw))
    await wire.send_all(sent)
    return wire


async def all_of(wire: trio.SocketStream, end: bytes) -> bytes:
    received = bytearray()
    with trio.fail_after(30):
        while not received.endswith(end):
            piece = await wire.receive_some(MIB)
            assert piece, "the answer was cut"
            received += piece
    return bytes(received)


async def was_cut(wire: trio.SocketStream) -> bool:
    """Whether the rest of the answer does not come."""
    received = bytearray()
    try:
        with trio.fail_after(30):
            while piece := await wire.receive_some(MIB):
                received += piece
    except trio.BrokenResourceError:
        return True
    return not received.endswith(b"0\r\n\r\n")


@pytest.mark.contract("EXEC-006", "EXEC-015", "EXEC-017")
async def test_a_slow_reader_keeps_no_place_when_the_engine_has_done_its_work() -> None:
    """One lane, no waiting places: whoever keeps the one place has it alone."""
    device = FakeDevice(choose=choose_letter)
    settings = ServiceSettings(max_pending_requests=0)
    tokens = ReplyTokens(token_bytes=lambda token: b"y" * 20_000)
    async with (
        open_service(device, settings=settings, reply_tokens=tokens) as house,
        running_server(house.service, [OpenAIChat(house.service)]) as server,
        await slow_client(server, request(max_tokens=200)) as slow,
    ):
        await until(lambda: house.engine.figures().generated_tokens == 200)
        await until(lambda: house.service.capacity.taken == 0)
        for _ in range(3):
            async with await trio.open_tcp_stream(*server.address) as other:
                await other.send_all(request(max_tokens=2))
                assert (await all_of(other, b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        received = await all_of(slow, b"0\r\n\r\n")
        assert received.count(b"y" * 20_000) == 200
        assert b"data: [DONE]" in received


async def test_a_client_too_far_behind_its_stream_is_cut() -> None:
    host = FakeHost(steps=script(*["x" * 60_000] * 100))
    settings = ServerSettings(unread_stream_bytes=2 * MIB, grace_s=1.0)
    async with (
        running_server(host, [OpenAIChat(host)], settings=settings) as server,
        await slow_client(server, request()) as slow,
    ):
        await until(lambda: host.left == 1)
        await until(lambda: len(server.connections) == 0)
        assert await was_cut(slow)


class Large(OpenAIChat):
    """Chat with a route whose answer is whole and large."""

    def routes(self) -> tuple[Route, ...]:
        return (*super().routes(), Route("POST", "/v1/large", self.large))

    async def large(self, call: Call) -> None:
        await call.reply({"text": "x" * MIB})


@pytest.mark.parametrize("whole", [True, False], ids=["whole answers", "streams"])
async def test_who_has_been_behind_for_longest_makes_room(whole: bool, caplog: pytest.LogCaptureFixture) -> None:
    host = FakeHost(steps=script(*["x" * 1024] * 1024))
    settings = ServerSettings(unread_bytes=4 * MIB, grace_s=1.0)
    asked = request("/v1/large" if whole else "/v1/chat/completions")
    async with running_server(host, [Large(host)], settings=settings) as server, AsyncExitStack() as stack:
        clients = []
        for _ in range(7):
            clients.append(await stack.enter_async_context(await slow_client(server, asked)))
            await trio.testing.wait_all_tasks_blocked(0.05)
        kept = len(server.connections)
        assert 2 <= kept <= 5  # the systems of both sides hold a part of each answer
        assert [record.levelname for record in caplog.records] == ["WARNING"] * (7 - kept)
        async with await trio.open_tcp_stream(*server.address) as quick:
            await quick.send_all(asked)
            await all_of(quick, b'"}' if whole else b"0\r\n\r\n")
        assert [await was_cut(client) for client in clients[: 7 - kept]] == [True] * (7 - kept)


async def test_a_large_answer_alone_is_sent() -> None:
    async with (
        running_server(FakeHost(), [Large(FakeHost())], settings=ServerSettings(unread_bytes=MIB // 2)) as server,
        await slow_client(server, request("/v1/large")) as slow,
    ):
        assert len(await all_of(slow, b'"}')) > MIB


def test_the_books_of_the_room() -> None:
    gone: list[str] = []
    room = UnreadRoom(all_bytes=10 * READ_BYTES, stream_bytes=8 * READ_BYTES)
    first, second, small = (Unread(room, lambda held, name=name: gone.append(name)) for name in ("1", "2", "small"))
    small.add(READ_BYTES)
    first.add(4 * READ_BYTES)
    second.add(5 * READ_BYTES)
    assert (gone, room.held_bytes) == ([], 10 * READ_BYTES)
    second.add(1)
    assert (gone, room.held_bytes) == (["1"], 6 * READ_BYTES + 1)
    first.take(READ_BYTES)  # what it was writing when it was cut
    assert first.held_bytes == 0
    second.add_to_stream(3 * READ_BYTES)
    assert gone == ["1", "2"]
    for one in (first, second, small):
        one.clear()
        one.clear()
    assert (room.held_bytes, room.behind) == (0, {})
