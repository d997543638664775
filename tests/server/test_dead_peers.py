"""Peers that vanish without a word, over a wire that can be cut: clients in a network namespace of their own.

The device's gate keeps one of their requests in the middle of its prompt and the others in the queue while nothing but
TCP can find out. Nothing here is timed: the limits of hanging are far above the seconds that the server allows.
"""

import json
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.server.settings import ServerSettings
from ninfer.service import ServiceSettings
from ninfer.testing import CARD, RunningServer, running_server, until
from tests.fakes.device import FakeDevice
from tests.fakes.service import OpenService, choose_letter, open_service

HANGS_S = 60
"""Without its limits TCP holds on to a dead peer for a quarter of an hour, and to a silent one for two hours."""
TEST_NETWORKS = IPv4Network("198.18.0.0/15")  # for measurements between networks; routed nowhere
CLIENT = """
import socket, sys
wire = socket.create_connection((sys.argv[1], int(sys.argv[2])))
wire.sendall(sys.stdin.buffer.read())
while wire.recv(65536):
    pass
"""


@attrs.frozen
class Wire:
    """A namespace for clients, and the one link that leads to it."""

    namespace: str
    interface: str
    """Its end of the link."""
    server_address: str

    def ip(self, *arguments: str) -> None:
        """Run `ip` inside of the namespace."""
        ip("-n", self.namespace, *arguments)

    def unplug(self) -> None:
        """Nothing passes any more, in either direction."""
        self.ip("link", "set", self.interface, "down")

    def silence(self) -> None:
        """The peer is there and its link is up, but nothing that it sends arrives."""
        self.ip("route", "add", "blackhole", f"{self.server_address}/32")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextmanager
def wire_to_a_namespace() -> Iterator[Wire]:
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` here, which makes network namespaces")
    token = secrets.token_hex(4)
    namespace, ours, theirs = f"ninfer-{token}", f"ni{token}a", f"ni{token}b"
    first = int(TEST_NETWORKS.network_address) + 4 * secrets.randbelow(TEST_NETWORKS.num_addresses // 4)
    server, client = IPv4Network((first, 30)).hosts()
    wire = Wire(namespace, theirs, str(server))
    try:
        try:
            ip("netns", "add", namespace)
            ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", namespace)
            ip("address", "add", f"{server}/30", "dev", ours)
            ip("link", "set", ours, "up")
            wire.ip("address", "add", f"{client}/30", "dev", theirs)
            wire.ip("link", "set", theirs, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
        yield wire
    finally:
        for leftover in (("link", "delete", ours), ("netns", "delete", namespace)):
            subprocess.run(["ip", *leftover], check=False, capture_output=True)


@attrs.frozen
class House:
    """A server over a device that stands still until it is let."""

    server: RunningServer
    open: OpenService
    gate: threading.Semaphore

    async def step(self) -> None:
        """Let the device finish one unit, and the engine take what has come in the meantime."""
        reads = self.reads()
        self.gate.release()
        await until(lambda: self.reads() > reads)

    def reads(self) -> int:
        return sum(call.action == "read" for call in self.open.device.calls)

    def phases(self) -> tuple[int, int, int]:
        """Requests in the lane, requests in the queue, and tokens that were generated."""
        figures = self.open.engine.figures()
        return figures.resident_requests, figures.waiting_requests, figures.generated_tokens

    async def come_in(self, calls: int) -> None:
        """Wait until `calls` requests have been handed to the engine; it sees them with its next unit."""
        await until(lambda: self.open.builder.ended == calls)
        await trio.testing.wait_all_tasks_blocked(0.02)


@asynccontextmanager
async def open_house(address: str, *, keep_alive_s: float = 5.0) -> AsyncIterator[House]:
    gate = threading.Semaphore(0)
    device = FakeDevice(gate=gate, choose=choose_letter)
    settings = ServerSettings(grace_s=1.0, keep_alive_s=keep_alive_s)
    async with (
        # Nobody may leave the queue because of how long the wait is.
        open_service(device, settings=ServiceSettings(max_pending_requests=4, pending_timeout_s=10 * HANGS_S)) as it,
        running_server(it.service, [OpenAIChat(it.service)], settings=settings, address=address) as server,
    ):
        try:
            yield House(server, it, gate)
        finally:
            gate.release(100_000)


def request(text: str, *, stream: bool, max_tokens: int = 100) -> bytes:
    messages = [{"role": "user", "content": text}]
    body = {"model": CARD.id, "messages": messages, "max_tokens": max_tokens, "stream": stream}
    content = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def read_to_the_end(client: trio.SocketStream) -> None:
    received = b""
    with trio.fail_after(10):
        while b"[DONE]" not in received:
            piece = await client.receive_some()
            assert piece, "the stream was cut"
            received += piece


@pytest.mark.slow
@pytest.mark.contract("HTTP-014", "HTTP-015")
@pytest.mark.parametrize("lose", [Wire.unplug, Wire.silence])
async def test_a_dead_peer_is_cancelled_and_one_that_acknowledges_is_not(lose: Callable[[Wire], None]) -> None:
    """In the middle of the prompt and in the queue, streamed and not; a paused peer waits among them."""
    with wire_to_a_namespace() as wire:
        async with open_house(wire.server_address) as house, trio.open_nursery() as clients:

            def come(text: str, *, stream: bool) -> None:
                """Start a client in the namespace that sends a request and reads."""
                address, port = house.server.address
                command = ["ip", "netns", "exec", wire.namespace, sys.executable, "-c", CLIENT, address, str(port)]
                sent = request(text, stream=stream)
                clients.start_soon(partial(trio.run_process, command, stdin=sent, check=False))

            come("x" * 3500, stream=True)  # 28 chunks
            await house.come_in(1)
            await house.step()
            paused = await trio.open_tcp_stream(*house.server.address)
            await paused.send_all(request("acknowledges", stream=True, max_tokens=2))
            await house.come_in(2)
            come("waits", stream=True)
            come("waits", stream=False)
            await house.come_in(4)
            while house.phases() != (1, 3, 0):
                assert house.phases()[2] == 0, "the prompt has come to its end"
                await house.step()
            lose(wire)
            await until(lambda: len(house.server.running) == 1, at_most_s=HANGS_S)
            assert house.phases() == (1, 3, 0), "no unit has ended: the engine hears of it with the next one"
            house.gate.release(100)
            await read_to_the_end(paused)
            await until(lambda: house.phases()[:2] == (0, 0))
            assert house.phases()[2] == 2, "nothing was generated for the dead"
            figures = house.open.engine.figures()
            assert figures.free_pages == figures.total_pages
            await paused.aclose()
            clients.cancel_scope.cancel()


@pytest.mark.contract("HTTP-015")
async def test_a_peer_that_acknowledges_and_does_not_read_keeps_its_request() -> None:
    async with open_house("127.0.0.1", keep_alive_s=0.01) as house:
        raw = socket.create_connection(house.server.address)
        raw.setblocking(False)
        client = trio.SocketStream(trio.socket.from_stdlib_socket(raw))
        await client.send_all(request("short", stream=True, max_tokens=2))

        def comments() -> int:
            """What lies unread in the peer's own buffer: its stack has acknowledged it."""
            try:
                return raw.recv(1 << 16, socket.MSG_PEEK).count(b": keep-alive")
            except BlockingIOError:
                return 0

        await until(lambda: comments() >= 20)
        assert len(house.server.running) == 1
        house.gate.release(100)
        await read_to_the_end(client)
        await client.aclose()


@pytest.mark.contract("HTTP-015")
def test_the_duty_of_proxies_is_written_down() -> None:
    text = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    (paragraph,) = [item for item in text.split("\n- ") if "proxy" in item]
    said = " ".join(paragraph.split())
    assert "acknowledges" in said
    assert "must close its connection to us when its own client leaves" in said
