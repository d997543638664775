"""Spoiled requests, head and all, over sockets: some get an answer, some get none, and the server is none the worse."""

import json
import random
import re
from collections import Counter

import pytest
import trio

from ninfer.testing import RunningServer, running_server
from tests.fuzz.chat_bodies import BODIES
from tests.fuzz.driver import ANSWER_S
from tests.fuzz.house import open_house
from tests.fuzz.mutate import mutate_bytes

REQUESTS = 600
AT_ONCE = 30
PATIENCE_S = 0.3
"""A spoiled length can make the server wait for more: then it is the client that goes."""
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def spoiled_request(random_: random.Random) -> bytes:
    """A whole request with a byte or a few changed, mostly in its head."""
    body = json.dumps(random_.choice(BODIES)).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\nConnection: keep-alive\r\n\r\n"
    ).encode()
    return mutate_bytes(head, random_) + body if random_.random() < 0.8 else mutate_bytes(head + body, random_)


async def try_one(server: RunningServer, request: bytes, statuses: Counter[int]) -> None:
    """Send a request and read what comes until nothing does."""
    said = b""
    stream = await trio.open_tcp_stream(*server.address)
    async with stream:
        try:
            with trio.move_on_after(PATIENCE_S):
                await stream.send_all(request)
                while data := await stream.receive_some():
                    said += data
                    if b"}" in data or data.endswith(b"0\r\n\r\n"):
                        break
        except trio.BrokenResourceError:
            pass  # reset by the server, which may have answered before
    found = STATUS.match(said)
    statuses[int(found[1]) if found else 0] += 1


async def test_spoiled_requests_over_sockets(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    random_ = random.Random(seed)
    statuses: Counter[int] = Counter()
    async with open_house() as house, running_server(house.service) as server:
        with trio.fail_after(ANSWER_S * 3):
            for _ in range(REQUESTS // AT_ONCE):
                async with trio.open_nursery() as nursery:
                    for _ in range(AT_ONCE):
                        nursery.start_soon(try_one, server, spoiled_request(random_), statuses)
        with trio.fail_after(ANSWER_S):
            await server.connections.wait_until_none()
    with capsys.disabled():
        print(f"{REQUESTS} requests, {dict(sorted(statuses.items()))}; 0: no answer")
    assert not [status for status in statuses if status >= 500 and status not in (501, 505)]
    assert statuses[200] > 0
    assert statuses[400] > 0
