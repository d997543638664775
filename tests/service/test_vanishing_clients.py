"""Clients that vanish over real sockets, in every phase of a request: afterwards nothing of theirs is left.

The device's gate lets a test hold each phase still. Thirty clients leave in each; the test counts them, and compares
free pages, free slots, living tasks, open sockets and taken places with the figures before.
"""

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.reply import ReplyTokens
from ninfer.service import ServiceSettings
from ninfer.testing import CARD, RunningServer, running_server, until
from tests.fakes.device import FakeDevice
from tests.fakes.service import ByteBuilder, OpenService, choose_letter, open_service

CLIENTS = 30
BIG_TOKEN_BYTES = 50_000
UNITS = 3
"""What the device does after a departure until everything is free: the unit in flight, the one that was dispatched
behind it, and the step after which the figures are published."""


@attrs.frozen(kw_only=True)
class Figures:
    """What a request may take, at one moment."""

    free_pages: int
    free_slots: int
    waiting: int
    resident: int
    places: int
    calls: int
    connections: int
    descriptors: int
    tasks: int


@attrs.frozen(kw_only=True)
class House:
    """A server over a service over a device that stands still until it is let."""

    server: RunningServer
    open: OpenService
    gate: threading.Semaphore

    def figures(self) -> Figures:
        engine = self.open.engine.figures()
        return Figures(
            free_pages=engine.free_pages,
            free_slots=engine.free_slots,
            waiting=engine.waiting_requests,
            resident=engine.resident_requests,
            places=self.open.service.capacity.taken,
            calls=len(self.server.running),
            connections=len(self.server.connections),
            descriptors=len(os.listdir("/proc/self/fd")),
            tasks=trio.lowlevel.current_statistics().tasks_living,
        )

    async def connect(self, text: str, *, max_tokens: int = 1000) -> trio.SocketStream:
        """A client that has sent a streamed request and reads nothing yet."""
        body = {
            "model": CARD.id,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": max_tokens,
            "stream": True,
        }
        content = json.dumps(body).encode()
        wire = await trio.open_tcp_stream(*self.server.address)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
        await wire.send_all(head.encode() + content)
        return wire

    async def answered(self) -> bool:
        """Whether another request is served to its end."""
        self.gate.release(10)
        async with await self.connect("next", max_tokens=2) as wire:
            received = b""
            with trio.fail_after(5):
                while b"[DONE]" not in received:
                    received += await wire.receive_some()
        return True


@asynccontextmanager
async def open_house(
    *, builder: ByteBuilder | None = None, token_bytes: Callable[[int], bytes] | None = None
) -> AsyncIterator[House]:
    gate = threading.Semaphore(0)
    device = FakeDevice(gate=gate, choose=choose_letter)
    tokens = ReplyTokens(token_bytes=token_bytes or (lambda token: bytes([token])))
    settings = ServiceSettings(max_pending_requests=4)
    async with (
        open_service(device, settings=settings, builder=builder, reply_tokens=tokens) as opened,
        running_server(opened.service, [OpenAIChat(opened.service)]) as server,
    ):
        await trio.testing.wait_all_tasks_blocked()
        try:
            yield House(server=server, open=opened, gate=gate)
        finally:
            gate.release(100_000)


async def leave(wire: trio.SocketStream, number: int) -> None:
    """Close, every other time with a reset."""
    if number % 2:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await wire.aclose()


async def all_free(house: House, before: Figures, *, others_pages: bool = False) -> None:
    """Wait until the figures are those of `before`; says which are not. Another request's pages may have grown."""

    def now() -> Figures:
        found = house.figures()
        return attrs.evolve(found, free_pages=before.free_pages) if others_pages else found

    with contextlib.suppress(trio.TooSlowError):
        await until(lambda: now() == before)
    assert attrs.asdict(now()) == attrs.asdict(before)


async def vanish(
    house: House, text: str, reached: Callable[[trio.SocketStream], Awaitable[None]], *, others_pages: bool = False
) -> None:
    """Let `CLIENTS` clients come, get as far as `reached` waits for, and leave."""
    before = house.figures()
    gone = 0
    for number in range(CLIENTS):
        wire = await house.connect(text)
        await reached(wire)
        assert house.figures() != before
        await leave(wire, number)
        gone += 1
        await until(lambda: len(house.server.running) == before.calls)
        house.gate.release(UNITS)
        await all_free(house, before, others_pages=others_pages)
        while house.gate.acquire(blocking=False):
            pass  # the next client finds the device standing still again
    assert gone >= 30


@pytest.mark.contract("HTTP-016")
async def test_while_tokenizing() -> None:
    builder = ByteBuilder(gate=threading.Event())
    assert builder.gate is not None
    async with open_house(builder=builder) as house:
        before = house.figures()
        for number in range(CLIENTS):
            begun = builder.builds
            builder.gate.clear()
            wire = await house.connect("x" * 9000)
            await until(lambda begun=begun: builder.builds == begun + 1)
            await leave(wire, number)
            await all_free(house, before)  # at once, though the thread still works
            builder.gate.set()
            await until(lambda: builder.ended == builder.builds)
        assert builder.builds == CLIENTS
        assert await house.answered()


@pytest.mark.contract("HTTP-016")
async def test_while_queued() -> None:
    async with open_house() as house:
        before = house.figures()
        holder = await house.connect("holds the only lane", max_tokens=4000)
        await until(lambda: house.open.engine.figures().resident_requests == 1)

        async def queued(wire: trio.SocketStream) -> None:
            # The worker takes commands between two units: give it units until it has, which the holder uses.
            await until(lambda: house.gate.release(1) or house.open.engine.figures().waiting_requests == 1)

        await vanish(house, "waits", queued, others_pages=True)
        await holder.aclose()
        await until(lambda: len(house.server.running) == 0)
        house.gate.release(UNITS)
        await all_free(house, before)
        assert await house.answered()


@pytest.mark.contract("HTTP-016")
async def test_while_prefilling() -> None:
    async with open_house() as house:

        async def prefilling(wire: trio.SocketStream) -> None:
            house.gate.release(1)
            await until(lambda: 0 < house.open.engine.figures().prefilled_tokens % 1280 < 1280)
            await until(lambda: house.open.engine.figures().resident_requests == 1)

        await vanish(house, "x" * 1000, prefilling)
        assert house.open.engine.figures().generated_tokens == 0
        assert await house.answered()


@pytest.mark.contract("HTTP-016")
async def test_while_decoding() -> None:
    async with open_house() as house:

        async def decoding(wire: trio.SocketStream) -> None:
            house.gate.release(5)
            received = b""
            while received.count(b'"content"') < 3:
                received += await wire.receive_some()

        await vanish(house, "short", decoding)
        assert await house.answered()


@pytest.mark.contract("HTTP-016", "EXEC-017")
async def test_inside_a_frame() -> None:
    """The socket is full and half of a frame is in it: the server waits in a write when the client goes."""
    async with open_house(token_bytes=lambda token: b"y" * BIG_TOKEN_BYTES) as house:

        async def inside_a_frame(wire: trio.SocketStream) -> None:
            (accepted,) = house.server.connections.streams
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
            house.gate.release(20)  # a megabyte: more than all buffers take
            received = b""
            while not received.endswith(b"yyyy"):
                received = await wire.receive_some(3001)
            await trio.testing.wait_all_tasks_blocked(0.02)  # the writer, too

        await vanish(house, "short", inside_a_frame)
        assert await house.answered()


async def test_a_reader_that_stalls_slows_nobody() -> None:
    async with open_house(token_bytes=lambda token: b"y" * BIG_TOKEN_BYTES) as house:
        stalled = await house.connect("never reads", max_tokens=100)
        house.gate.release(200)
        await until(lambda: house.open.engine.figures().generated_tokens == 100)
        assert await house.answered()
        await stalled.aclose()
