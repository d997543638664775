"""Spoiled Chat bodies: whatever comes in, an answer in the right envelope goes out, soon, and nothing stays behind."""

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_chat.decode import decode
from ninfer.server.app import create_app
from ninfer.testing import asgi_call
from tests.fuzz.chat_bodies import BODIES, WORDS
from tests.fuzz.driver import Spoil, Target, at_the_application, over_a_socket
from tests.fuzz.house import open_house
from tests.fuzz.verdict import check_answer

CHAT = Target(
    protocol=OpenAIChat,
    path="/v1/chat/completions",
    bodies=BODIES,
    words=WORDS,
    check=check_answer,
    decode=decode,
)
BYTE_MUTATIONS = 3_000
STRUCTURE_MUTATIONS = 7_000
SOCKET_REQUESTS = 500
LEAST_DECODED = 0.20
LEAST_ANSWERED = 0.05


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_the_bodies_that_are_spoiled_are_good(body: Mapping[str, Any]) -> None:
    async with open_house() as house:
        app = create_app(house.service, (OpenAIChat(house.service),))
        answer = await asgi_call(app, "POST", CHAT.path, json.dumps(body).encode())
        assert answer.status == 200
        check_answer(answer.status, answer.headers, answer.body)


@pytest.mark.contract("ERR-003", "ERR-005")
@pytest.mark.parametrize(
    ("spoil", "count"),
    [(CHAT.spoil_bytes, BYTE_MUTATIONS), (CHAT.spoil_structure, STRUCTURE_MUTATIONS)],
    ids=["bytes", "structure"],
)
async def test_spoiled_bodies_at_the_application(
    spoil: Spoil, count: int, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = await at_the_application(CHAT, spoil, count, random.Random(seed))
    with capsys.disabled():
        print(tally)
    assert tally.decoded >= LEAST_DECODED * count
    assert tally.statuses[200] >= LEAST_ANSWERED * count


async def test_spoiled_bodies_over_a_socket(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    tally = await over_a_socket(CHAT, SOCKET_REQUESTS, random.Random(seed))
    with capsys.disabled():
        print(tally)
    assert sum(tally.statuses.values()) == SOCKET_REQUESTS * 9 // 10
