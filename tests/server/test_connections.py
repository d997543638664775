"""How many connections there may be, who makes room, and the clocks that end them: these are moved, nothing waits."""

import json
import logging
import socket
import subprocess
import sys
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from ninfer.conversation import Started
from ninfer.server.client_connection import FIRST_HEAD_S, IDLE_CONNECTION_S, LINGER_SILENCE_S, WRITE_S
from ninfer.server.open_connections import OpenConnections
from ninfer.server.settings import ServerSettings
from ninfer.server.sockets import MOST_CONNECTIONS, OWN_DESCRIPTORS
from ninfer.testing import CARD, FakeHost, RunningServer, running_server, script

BODY = json.dumps({"model": CARD.id, "messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
POSTED = POST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
HALF_A_BODY = POSTED[:-10]


async def until_still(server: RunningServer, count: int) -> None:
    """Wait for so many open connections, without a clock."""
    for _ in range(20_000):
        if len(server.connections) == count:
            return
        await trio.lowlevel.checkpoint()
    pytest.fail(f"{len(server.connections)} connections, not {count}")


async def healthy(wire: trio.SocketStream) -> bool:
    """Whether the server answers on this connection, which is idle afterwards."""
    await wire.send_all(HEALTH)
    received = b""
    while b"}" not in received:
        piece = await wire.receive_some()
        if not piece:
            return False
        received += piece
    await trio.testing.wait_all_tasks_blocked(0.001)
    return received.startswith(b"HTTP/1.1 200")


# How many


@pytest.mark.parametrize("sent", [b"", b"GET /he", HALF_A_BODY], ids=["nothing", "half a head", "half a body"])
async def test_idle_connections_shut_nobody_out(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """All from one address, as all local users and all clients of a proxy are."""
    host = FakeHost()
    async with running_server(host, connections=OpenConnections(8)) as server, AsyncExitStack() as stack:
        with caplog.at_level(logging.WARNING):
            for _ in range(30):
                idle = await stack.enter_async_context(await trio.open_tcp_stream(*server.address))
                if sent:
                    await idle.send_all(sent)
                await trio.testing.wait_all_tasks_blocked(0.001)
                assert len(server.connections) <= 8
            for _ in range(3):
                wire = await stack.enter_async_context(await trio.open_tcp_stream(*server.address))
                assert await healthy(wire)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "all 8 connections are in use" in caplog.text


async def test_the_crowded_address_makes_room_and_there_who_waits_longest() -> None:
    async with running_server(FakeHost(), connections=OpenConnections(4)) as server, AsyncExitStack() as stack:

        async def come(source: str) -> trio.SocketStream:
            wire = await trio.open_tcp_stream(*server.address, local_address=source)
            return await stack.enter_async_context(wire)

        alone = await come("127.0.0.2")
        await until_still(server, 1)
        crowd = []
        for count in (2, 3, 4):
            crowd.append(await come("127.0.0.1"))
            await until_still(server, count)
        assert await healthy(crowd[0])  # it waits for a shorter time than the second one now
        newcomer = await come("127.0.0.1")
        assert await healthy(newcomer)
        assert await crowd[1].receive_some() == b""
        for wire in (alone, crowd[0], crowd[2], newcomer):
            assert await healthy(wire)


async def test_a_request_that_is_answered_never_makes_room() -> None:
    host = FakeHost(steps=[Started(1, 0), trio.Event()])
    async with running_server(host, connections=OpenConnections(2)) as server, AsyncExitStack() as stack:
        for count in (1, 2):
            wire = await stack.enter_async_context(await trio.open_tcp_stream(*server.address))
            await wire.send_all(POSTED)
            while host.open_generations < count:
                await trio.testing.wait_all_tasks_blocked(0.001)
        refused = await stack.enter_async_context(await trio.open_tcp_stream(*server.address))
        assert await refused.receive_some() == b""
        assert (host.open_generations, len(server.connections)) == (2, 2)


def test_the_limit_of_descriptors_is_raised_and_bounds_the_connections() -> None:
    code = (
        "import resource as r, ninfer.server.sockets as s\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (300, {hard}))\n"
        "before = s.most_connections(); s.raise_descriptor_limit()\n"
        "print(before, s.most_connections(), r.getrlimit(r.RLIMIT_NOFILE))"
    )
    for hard, most in ((1000, 1000 - OWN_DESCRIPTORS), (300, 44), (4000, MOST_CONNECTIONS)):
        command = [sys.executable, "-c", code.format(hard=hard)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert said == f"44 {most} ({min(hard, 1 << 16)}, {hard})\n"


# How long


async def test_a_first_request_is_waited_for_shortly_and_a_later_one_as_long_as_pools_keep_connections(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with running_server(FakeHost()) as server, AsyncExitStack() as stack:
        silent, half, used = [
            await stack.enter_async_context(await trio.open_tcp_stream(*server.address)) for _ in range(3)
        ]
        await half.send_all(HEALTH[:20])
        assert await healthy(used)
        await until_still(server, 3)
        mock_clock.jump(FIRST_HEAD_S - 1)
        await trio.testing.wait_all_tasks_blocked(0)
        assert len(server.connections) == 3
        mock_clock.jump(1)
        assert await silent.receive_some() == b""
        assert await half.receive_some() == b""
        await until_still(server, 1)
        assert await healthy(used)
        mock_clock.jump(IDLE_CONNECTION_S - 1)
        assert await healthy(used)
        mock_clock.jump(IDLE_CONNECTION_S)
        assert await used.receive_some() == b""
        await until_still(server, 0)


async def test_a_reader_that_drips_is_cut(mock_clock: trio.testing.MockClock) -> None:
    """TCP takes it for one that reads: each drop that it takes is acknowledged."""
    host = FakeHost(steps=script("x" * (8 << 20)))
    async with running_server(host) as server:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        raw.connect(server.address)
        raw.setblocking(False)
        async with trio.SocketStream(trio.socket.from_stdlib_socket(raw)) as wire:
            await wire.send_all(POSTED)
            for _ in range(3):  # it takes its pieces, slowly
                for _ in range(40):
                    await wire.receive_some(1 << 12)
                await trio.testing.wait_all_tasks_blocked(0.001)
                mock_clock.jump(WRITE_S - 1)
                await trio.testing.wait_all_tasks_blocked(0.001)
                assert len(server.connections) == 1
            for _ in range(3):
                await wire.receive_some(100)
                mock_clock.jump(WRITE_S / 2)
                await trio.testing.wait_all_tasks_blocked(0.001)
            await until_still(server, 0)
        assert host.left == 1


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/none"], ids=["begun", "not found"])
async def test_a_half_sent_body_delays_no_stop(path: bytes, mock_clock: trio.testing.MockClock) -> None:
    """Its client is answered at once, and may take the answer and go; one that stays is waited for shortly."""
    settings = ServerSettings(grace_s=10)
    async with running_server(FakeHost(), settings=settings) as server, AsyncExitStack() as stack:
        goes, stays = [await stack.enter_async_context(await trio.open_tcp_stream(*server.address)) for _ in range(2)]
        for wire in (goes, stays):
            await wire.send_all(HALF_A_BODY.replace(b"/v1/chat/completions", path))
        await trio.testing.wait_all_tasks_blocked(0.05)
        server.stop.ask()
        received = b"".join([piece async for piece in goes])
        assert received.startswith(b"HTTP/1.1 503 " if path != b"/none" else b"HTTP/1.1 404 ")
        assert b"\r\nconnection: close\r\n" in received
        await goes.aclose()
        await until_still(server, 1)
        assert b"HTTP/1.1" in b"".join([piece async for piece in stays])
        mock_clock.jump(LINGER_SILENCE_S)
        await until_still(server, 0)
