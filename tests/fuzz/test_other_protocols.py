"""Spoiled bodies of Responses and Messages: the same promises as for Chat, each in its own envelope."""

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from ninfer.server.app import create_app
from ninfer.testing import asgi_call
from tests.fuzz.driver import Target, at_the_application
from tests.fuzz.house import open_house
from tests.fuzz.messages import MESSAGES
from tests.fuzz.responses import RESPONSES

COUNT = 2_000
LEAST_DECODED = 0.10
"""Less than for Chat: Responses refuses every field that it does not know."""
LEAST_ANSWERED = 0.05

TARGETS = {"responses": RESPONSES, "messages": MESSAGES}
GOOD = [
    pytest.param(target, body, id=f"{name}-{at}")
    for name, target in TARGETS.items()
    for at, body in enumerate(target.bodies)
]


@pytest.mark.parametrize(("target", "body"), GOOD)
async def test_the_bodies_that_are_spoiled_are_good(target: Target, body: Mapping[str, Any]) -> None:
    async with open_house() as house:
        app = create_app(house.service, (target.protocol(house.service),))
        answer = await asgi_call(app, "POST", target.path, json.dumps(body).encode())
        assert answer.status == 200, answer.body
        target.check(answer.status, answer.headers, answer.body)


@pytest.mark.parametrize("name", TARGETS)
async def test_spoiled_bodies_at_the_application(name: str, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    target = TARGETS[name]
    tally = await at_the_application(target, target.spoil_structure, COUNT, random.Random(seed))
    with capsys.disabled():
        print(tally)
    assert tally.decoded >= LEAST_DECODED * COUNT
    assert tally.statuses[200] >= LEAST_ANSWERED * COUNT
