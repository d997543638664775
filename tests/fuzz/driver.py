"""Drives spoiled bodies at a protocol, at the application or over a socket, and counts what came of them.

It knows HTTP and a `Target`; what a well-mannered answer is, the target's check says. Invariant: every request has a
deadline, and every failed check shows the body that it failed on.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import h11
import trio

from ninfer.conversation import RequestError
from ninfer.protocols.plugin import JSONValue, Protocol
from ninfer.protocols.sse import dump_json
from ninfer.server.app import create_app
from ninfer.server.json_reader import read_json
from ninfer.service.host import ServiceHost
from ninfer.testing import FakeHost, RunningServer, asgi_call, running_server
from tests.fuzz.house import open_house
from tests.fuzz.mutate import mutate_bytes, mutate_structure

ANSWER_S = 60.0
"""A request that takes longer hangs: none takes more than a few milliseconds of work."""

Check: TypeAlias = Callable[[int, Mapping[str, str], bytes], None]
"""Asserts that status, headers (lower-case names) and body of an answer are well-mannered."""
Spoil: TypeAlias = Callable[[random.Random], bytes]
Decode: TypeAlias = Callable[[JSONValue], object]
"""The protocol's own decoding of a body."""


@attrs.frozen(kw_only=True)
class Target:
    """A route to be fuzzed."""

    protocol: Callable[[ServiceHost], Protocol]
    path: str
    bodies: Sequence[Mapping[str, Any]]
    """Valid bodies to start from: each is answered 200."""
    words: Sequence[str]
    """Names and values that mean something on this route."""
    check: Check
    decode: Decode

    def spoil_bytes(self, random_: random.Random) -> bytes:
        """One of the bodies with a few bytes changed."""
        body = json.dumps(random_.choice(self.bodies), ensure_ascii=random_.random() < 0.5)
        return mutate_bytes(body.encode(), random_)

    def spoil_structure(self, random_: random.Random) -> bytes:
        """One of the bodies with a few members changed."""
        return mutate_structure(random_.choice(self.bodies), random_, self.words)


@attrs.frozen(kw_only=True)
class Tally:
    """What came of some bodies."""

    count: int
    decoded: int
    """Bodies that became a prompt, or as far as one: they were structure and sense enough for that."""
    statuses: Counter[int]

    def __str__(self) -> str:
        """One line for a test's output."""
        answered = self.statuses[200] / self.count
        return (
            f"{self.count} bodies, {self.decoded / self.count:.0%} decoded, {answered:.0%} answered 200, "
            + ", ".join(f"{status}: {number}" for status, number in sorted(self.statuses.items()))
        )


def in_decode(target: Target, count: int, random_: random.Random) -> Tally:
    """Decode `count` bodies of spoiled structure: a request or a refusal comes of each, and nothing else.

    In the tally 200 stands for a request.
    """
    envelope = target.protocol(FakeHost())
    statuses: Counter[int] = Counter()
    for number in range(count):
        body = target.spoil_structure(random_)
        try:
            target.decode(read_json(body))
            statuses[200] += 1
        except RequestError as refusal:
            wire = envelope.error(refusal, "req_1")
            statuses[wire.status] += 1
            headers = {"content-type": "application/json", envelope.request_id_header: "req_1", **wire.headers}
            _judge(target, number, body, wire.status, headers, dump_json(wire.body).encode())
        except Exception as error:
            error.add_note(f"body {number}: {body[:2_000]!r}")
            raise
    return Tally(count=count, decoded=statuses[200], statuses=statuses)


async def at_the_application(target: Target, spoil: Spoil, count: int, random_: random.Random) -> Tally:
    """Send `count` bodies to the ASGI application itself, one after the other."""
    statuses: Counter[int] = Counter()
    async with open_house() as house:
        app = create_app(house.service, (target.protocol(house.service),))
        for number in range(count):
            body = spoil(random_)
            with trio.fail_after(ANSWER_S):
                answer = await asgi_call(app, "POST", target.path, body)
            assert answer.complete
            _judge(target, number, body, answer.status, answer.headers, answer.body)
            statuses[answer.status] += 1
        return Tally(count=count, decoded=house.prompts.built, statuses=statuses)


async def over_a_socket(target: Target, count: int, random_: random.Random) -> Tally:
    """Send `count` bodies to a real server in changing framings; every tenth client leaves before its answer."""
    statuses: Counter[int] = Counter()
    async with open_house() as house:
        protocols = (target.protocol(house.service),)
        async with running_server(house.service, protocols) as server:
            client = SocketClient(server, target.path)
            for number in range(count):
                body = (target.spoil_bytes if number % 2 else target.spoil_structure)(random_)
                with trio.fail_after(ANSWER_S):
                    if number % 10 == 9:
                        await client.leave_within(body, random_)
                    else:
                        status, headers, answer = await client.post(body, random_)
                        _judge(target, number, body, status, headers, answer)
                        statuses[status] += 1
            await client.close()
            with trio.fail_after(ANSWER_S):
                await server.connections.wait_until_none()
        return Tally(count=count, decoded=house.prompts.built, statuses=statuses)


def _judge(target: Target, number: int, body: bytes, status: int, headers: Mapping[str, str], answer: bytes) -> None:
    try:
        target.check(status, headers, answer)
    except (AssertionError, ValueError, KeyError, TypeError) as error:
        error.add_note(f"body {number}: {body[:2_000]!r}")
        raise


class SocketClient:
    """One client that keeps its connection while it can, and frames its bodies in every way there is."""

    def __init__(self, server: RunningServer, path: str) -> None:
        self._server = server
        self._path = path
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
        yield self._wire.send(h11.Request(method="POST", target=self._path, headers=head)) or b""
        at = 0
        while at < len(body):
            until = at + random_.choice((1, 7, 100, 10_000, len(body)))
            yield self._wire.send(h11.Data(data=body[at:until])) or b""
            at = until
        yield self._wire.send(h11.EndOfMessage()) or b""
