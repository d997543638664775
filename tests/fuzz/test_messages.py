"""Spoiled Messages bodies: the same promises as for Chat, in Anthropic's envelope."""

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from ninfer.server.app import create_app
from tests.fakes.server import asgi_call
from tests.fuzz.driver import at_the_application
from tests.fuzz.house import open_house
from tests.fuzz.messages import BODIES, MESSAGES


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_the_bodies_that_are_spoiled_are_good(body: Mapping[str, Any]) -> None:
    async with open_house() as house:
        app = create_app(house.service, (MESSAGES.protocol(house.service),))
        answer = await asgi_call(app, "POST", MESSAGES.path, json.dumps(body).encode())
        assert answer.status == 200, answer.body
        MESSAGES.check(answer.status, answer.headers, answer.body)


async def test_spoiled_bodies_at_the_application(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    tally = await at_the_application(MESSAGES, MESSAGES.spoil_structure, 2_000, random.Random(seed))
    with capsys.disabled():
        print(tally)
    assert tally.decoded >= 0.2 * tally.count
    assert tally.statuses[200] >= 0.05 * tally.count
