"""Bytes around a request and inside its body: empty lines, what follows the last request, and tiny pieces."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from hypercorn.config import Config
from hypercorn.events import Event, RawData
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app

from ninfer.server.http1 import PIECES, TURN_S, Http1, Turns
from ninfer.testing import CARD, FakeHost, running_server

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
BODY = json.dumps({"model": CARD.id, "messages": [{"role": "user", "content": "Hi"}]}).encode()
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"


def posted(*headers: bytes) -> bytes:
    head = b"".join(header + b"\r\n" for header in (b"content-length: %d" % len(BODY), *headers))
    return CHAT + head + b"\r\n" + BODY


async def answers_to(*packets: bytes) -> list[bytes]:
    """The status lines of what comes back until the server closes the connection."""
    async with running_server(FakeHost()) as server, await trio.open_tcp_stream(*server.address) as wire:
        for packet in packets:
            await wire.send_all(packet)
            await trio.testing.wait_all_tasks_blocked(0.01)
        with trio.fail_after(5):
            received = b"".join([piece async for piece in wire])
    return [line for line in received.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


@pytest.mark.parametrize("behind", [b"\r\n", b"\r\n\r\n", b"\n", b"x", HEALTH + b"\r\n"])
@pytest.mark.parametrize("apart", [False, True], ids=["at once", "apart"])
async def test_nothing_behind_the_last_request_spoils_its_answer(behind: bytes, apart: bool) -> None:
    request = posted(b"connection: close")
    assert await answers_to(*([request, behind] if apart else [request + behind])) == [b"HTTP/1.1 200 "]


@pytest.mark.parametrize("empty", [b"\r\n", b"\r\n\r\n", b"\n"])
@pytest.mark.parametrize("size", [1, 2, 1 << 16], ids=["byte by byte", "by two", "at once"])
async def test_empty_lines_around_requests_mean_nothing(empty: bytes, size: int) -> None:
    """RFC 9112, 2.2: old clients send one behind a body."""
    requests = (HEALTH + b"\r\n", posted(), HEALTH + b"connection: close\r\n\r\n")
    sent = b"".join(empty + request for request in requests) + empty
    packets = [sent[at : at + size] for at in range(0, len(sent), size)]
    async with running_server(FakeHost()) as server, await trio.open_tcp_stream(*server.address) as wire:
        wire.setsockopt(6, 1, 1)
        for packet in packets:
            await wire.send_all(packet)
            await trio.lowlevel.checkpoint()
        with trio.fail_after(5):
            received = b"".join([piece async for piece in wire])
    assert received.count(b"HTTP/1.1 200 ") == 3
    assert received.count(b"HTTP/1.1 ") == 3


async def test_an_empty_line_inside_a_head_is_no_empty_line_before_it() -> None:
    assert await answers_to(b"GET /health\r\n HTTP/1.1\r\n\r\n") == [b"HTTP/1.1 400 "]


class Parsed:
    """A connection without a socket: what it has read, and how much of it the application has got."""

    def __init__(self, turns: Turns, group: TaskGroup) -> None:
        self.got: list[int] = []
        self.protocol = Http1(
            wrap_app(self.app, 0, "asgi"),
            Config(),
            WorkerContext(None),
            group,
            ConnectionState({}),
            False,
            ("127.0.0.1", 1),
            ("127.0.0.1", 2),
            self.sent,
            turns=turns,
            receive=trio.sleep_forever,
            client_left=trio.sleep_forever,
        )

    async def app(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            self.got.append(len(message["body"]))

    async def sent(self, event: Event) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("connections", [1, 4])
async def test_a_body_in_tiny_pieces_takes_turns(connections: int, autojump_clock: trio.testing.MockClock) -> None:
    """However many send such bodies: in each turn the pieces of one of them are parsed."""
    count = 100 * PIECES
    turns = Turns()
    begin_s = trio.current_time()
    async with TaskGroup() as group, trio.open_nursery() as nursery:
        parsed = [Parsed(turns, group) for _ in range(connections)]
        for one in parsed:
            sent = CHAT + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * count + b"0\r\n\r\n"
            nursery.start_soon(one.protocol.handle, RawData(sent))
    for one in parsed:
        assert sum(one.got) == count
        assert max(one.got) <= PIECES
    assert round((trio.current_time() - begin_s) / TURN_S) == connections * 100


@pytest.mark.parametrize("size", [1 << 10, 1 << 14])
async def test_a_body_in_usual_pieces_waits_for_no_turn(size: int, autojump_clock: trio.testing.MockClock) -> None:
    begin_s = trio.current_time()
    async with TaskGroup() as group:
        one = Parsed(Turns(), group)
        piece = b"%x\r\n" % size + bytes(size) + b"\r\n"
        await one.protocol.handle(RawData(CHAT + b"transfer-encoding: chunked\r\n\r\n" + piece * 1000 + b"0\r\n\r\n"))
    assert sum(one.got) == 1000 * size
    assert trio.current_time() == begin_s


async def test_a_large_request_may_follow_before_the_answer_has_ended_here() -> None:
    """The client has its answer; the server has still to tidy up, and reads on meanwhile."""
    body = json.dumps({**json.loads(BODY), "user": "x" * 400_000}).encode()
    request = CHAT + b"content-length: %d\r\n\r\n" % len(body) + body
    async with running_server(FakeHost()) as server, await trio.open_tcp_stream(*server.address) as wire:
        await wire.send_all((HEALTH + b"\r\n" + request) * 3 + HEALTH + b"connection: close\r\n\r\n")
        with trio.fail_after(10):
            received = b"".join([piece async for piece in wire])
    assert received.count(b"HTTP/1.1 200 ") == 7
