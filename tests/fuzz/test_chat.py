"""Spoiled Chat bodies: whatever comes in, an answer in the right envelope goes out, soon, and nothing stays behind.

`NINFER_FUZZ_SEED` repeats a run; where CI is set the seed is fixed. The seed stands in every test's output.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import h11
import pytest
import trio

from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.server.app import create_app
from tests.fakes.server import RunningServer, asgi_call, running_server
from tests.fuzz.chat_bodies import BODIES, WORDS
from tests.fuzz.house import open_house
from tests.fuzz.mutate import mutate_bytes, mutate_structure
from tests.fuzz.verdict import check_answer

PATH = "/v1/chat/completions"
BYTE_MUTATIONS = 3_000
STRUCTURE_MUTATIONS = 7_000
SOCKET_REQUESTS = 500
ANSWER_S = 20.0
"""A request that takes longer hangs: none takes more than a few milliseconds of work."""
LEAST_DECODED = 0.20
LEAST_ANSWERED = 0.05


@pytest.fixture
def seed(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> int:
    """The seed of this run, printed whatever the outcome."""
    given = os.environ.get("NINFER_FUZZ_SEED") or (1 if os.environ.get("CI") else random.SystemRandom().getrandbits(32))
    with capsys.disabled():
        print(f"\n{request.node.name}: NINFER_FUZZ_SEED={given}", end=" ")
    return int(given)


def spoil_bytes(random_: random.Random) -> bytes:
    return mutate_bytes(json.dumps(random_.choice(BODIES), ensure_ascii=random_.random() < 0.5).encode(), random_)


def spoil_structure(random_: random.Random) -> bytes:
    return mutate_structure(random_.choice(BODIES), random_, WORDS)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_the_bodies_that_are_spoiled_are_good(body: dict[str, Any]) -> None:
    async with open_house() as house:
        app = create_app(house.service, (OpenAIChat(house.service),))
        answer = await asgi_call(app, "POST", PATH, json.dumps(body).encode())
        assert answer.status == 200
        check_answer(answer.status, answer.headers, answer.body)


@pytest.mark.contract("ERR-003", "ERR-005")
@pytest.mark.parametrize(
    ("spoil", "count"),
    [(spoil_bytes, BYTE_MUTATIONS), (spoil_structure, STRUCTURE_MUTATIONS)],
    ids=["bytes", "structure"],
)
async def test_spoiled_bodies_at_the_application(
    spoil: Callable[[random.Random], bytes], count: int, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    random_ = random.Random(seed)
    statuses: Counter[int] = Counter()
    async with open_house() as house:
        app = create_app(house.service, (OpenAIChat(house.service),))
        for number in range(count):
            body = spoil(random_)
            with trio.fail_after(ANSWER_S):
                answer = await asgi_call(app, "POST", PATH, body)
            assert answer.complete
            explain(number, body, check_answer, answer.status, answer.headers, answer.body)
            statuses[answer.status] += 1
        decoded, answered = house.prompts.built / count, statuses[200] / count
    with capsys.disabled():
        print(f"{count} bodies, {decoded:.0%} decoded, {answered:.0%} answered 200, {dict(statuses)}")
    assert decoded >= LEAST_DECODED
    assert answered >= LEAST_ANSWERED


async def test_spoiled_bodies_over_a_socket(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    random_ = random.Random(seed)
    statuses: Counter[int] = Counter()
    async with open_house() as house, running_server(house.service) as server:
        client = SocketClient(server)
        for number in range(SOCKET_REQUESTS):
            body = spoil_bytes(random_) if number % 2 else spoil_structure(random_)
            with trio.fail_after(ANSWER_S):
                if number % 10 == 9:
                    await client.leave_within(body, random_)
                else:
                    status, headers, answer = await client.post(body, random_)
                    explain(number, body, check_answer, status, headers, answer)
                    statuses[status] += 1
        await client.close()
        with trio.fail_after(ANSWER_S):
            await server.connections.wait_until_none()
    with capsys.disabled():
        print(f"{SOCKET_REQUESTS} requests, {dict(statuses)}")


def explain(number: int, body: bytes, check: Callable[..., None], *arguments: Any) -> None:
    """Run a check, and show the body where it fails."""
    try:
        check(*arguments)
    except (AssertionError, ValueError, KeyError) as error:
        error.add_note(f"body {number}: {body[:2_000]!r}")
        raise


class SocketClient:
    """One client that keeps its connection while it can, and frames its bodies in every way there is."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._stream: trio.SocketStream | None = None
        self._wire = h11.Connection(h11.CLIENT)

    async def post(self, body: bytes, random_: random.Random) -> tuple[int, dict[str, str], bytes]:
        """Send one body and read its answer to the end."""
        stream = await self._connected()
        for piece in self._pieces(body, random_):
            await stream.send_all(piece)
        status, headers, answer = 0, {}, b""
        while not isinstance(event := self._wire.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                self._wire.receive_data(await stream.receive_some())
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode().lower(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                answer += event.data
            else:
                assert not isinstance(event, h11.ConnectionClosed), "closed without an answer"
        if self._wire.our_state is h11.DONE and self._wire.their_state is h11.DONE:
            self._wire.start_next_cycle()
        else:
            await self.close()
        return status, headers, answer

    async def leave_within(self, body: bytes, random_: random.Random) -> None:
        """Send a part of a request and be gone."""
        stream = await self._connected()
        whole = b"".join(self._pieces(body, random_))
        await stream.send_all(whole[: random_.randrange(1, len(whole) + 1)])
        await self.close()

    async def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._stream is not None:
            await self._stream.aclose()
        self._stream, self._wire = None, h11.Connection(h11.CLIENT)

    async def _connected(self) -> trio.SocketStream:
        if self._stream is None:
            self._stream = await trio.open_tcp_stream(*self._server.address)
        return self._stream

    def _pieces(self, body: bytes, random_: random.Random) -> Iterator[bytes]:
        chunked = random_.random() < 0.5
        framing = ("transfer-encoding", "chunked") if chunked else ("content-length", str(len(body)))
        head = [("host", "localhost"), ("content-type", "application/json"), framing]
        yield self._wire.send(h11.Request(method="POST", target=PATH, headers=head)) or b""
        at = 0
        while at < len(body):
            until = at + random_.choice((1, 7, 100, 10_000, len(body)))
            yield self._wire.send(h11.Data(data=body[at:until])) or b""
            at = until
        yield self._wire.send(h11.EndOfMessage()) or b""
