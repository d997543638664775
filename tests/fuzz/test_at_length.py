"""The same spoiled bodies at length: 100,000 a protocol through decoding, 2,000 a protocol over sockets."""

import random

import pytest

from tests.fuzz.driver import Target, in_decode, over_a_socket
from tests.fuzz.messages import MESSAGES
from tests.fuzz.responses import RESPONSES
from tests.fuzz.test_chat import CHAT

IN_DECODE = 100_000
OVER_SOCKETS = 2_000
LEAST_DECODED = 0.20

every_target = pytest.mark.parametrize(
    "target",
    [pytest.param(CHAT, id="chat"), pytest.param(RESPONSES, id="responses"), pytest.param(MESSAGES, id="messages")],
)


@pytest.mark.slow
@pytest.mark.contract("ERR-003")
@every_target
def test_bodies_through_decoding(target: Target, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    tally = in_decode(target, IN_DECODE, random.Random(seed))
    with capsys.disabled():
        print(tally)
    assert tally.decoded >= LEAST_DECODED * IN_DECODE


@pytest.mark.slow
@pytest.mark.contract("ERR-003")
@every_target
async def test_bodies_over_sockets(target: Target, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    tally = await over_a_socket(target, OVER_SOCKETS, random.Random(seed))
    with capsys.disabled():
        print(tally)
    answered = sum(tally.statuses.values())
    assert answered == OVER_SOCKETS * 9 // 10
    # A model that is not here is found out behind decoding, before there is a prompt.
    assert tally.decoded + tally.statuses[404] >= LEAST_DECODED * answered
