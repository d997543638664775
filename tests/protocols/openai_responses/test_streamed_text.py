"""Text beside tools, from the engine's tokens to the events of Responses: it leaves at once unless it may be a call."""

import json
import re
import threading
from functools import partial
from itertools import pairwise

import pytest
import trio

from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.server.app import create_app
from ninfer.testing import CARD, ASGIAnswer, asgi_call, until
from tests.fakes.device import FakeDevice
from tests.fakes.service import open_service, saying
from tests.protocols.openai_responses.test_routes import events_of

TOOLS = [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}]
ORDINARY = "In C, 1 <2 and <tool> or <tool_cal is no call.\nNor is < this: "
REGION = "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>"
BEGINNINGS = "|".join(re.escape("<tool_call>"[:length]) for length in range(10, 0, -1))
AMBIGUOUS = re.compile(rf"\s*(?:{BEGINNINGS})?\Z")  # white space before a call belongs to neither


def may_be_shown(said: str) -> str:
    """All of `said`, the reply so far, but a region and an end that may become one."""
    before, _, _ = said.partition(REGION[:11])
    return AMBIGUOUS.sub("", before)


def deltas(body: bytes) -> list[str]:
    """The text of every event that carries any, in a stream that goes on."""
    events = [json.loads(data) for data in re.findall(r"data: (\{.*\})\n\n", body.decode())]
    return [event["delta"] for event in events if event["type"] == "response.output_text.delta"]


def says(answer: ASGIAnswer, text: str) -> bool:
    return "".join(deltas(answer.body)) == text


@pytest.mark.contract("RSSE-014")
async def test_only_what_may_be_a_call_is_held_back() -> None:
    gate = threading.Semaphore(0)
    reply = ORDINARY + REGION
    device = FakeDevice(gate=gate, choose=saying(reply, after=2))
    body = {"model": CARD.id, "input": "Hi", "tools": TOOLS, "stream": True}
    answer = ASGIAnswer()
    async with open_service(device) as house:
        app = create_app(house.service, (OpenAIResponses(house.service),))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(post, app, body, answer)
                for said in range(1, len(reply) + 1):
                    gate.release()  # one more token, a byte: the next is let only when this one's text has been seen
                    await until(partial(says, answer, may_be_shown(reply[:said])))
                gate.release(10)
        finally:
            gate.release(1000)
    states = [may_be_shown(reply[:said]) for said in range(len(reply) + 1)]
    pieces = [after[len(before) :] for before, after in pairwise(states) if after != before]
    assert deltas(answer.body) == pieces, "text was shown that may have been a call"
    message, call = events_of(answer.body)[-1]["response"]["output"]
    assert message["content"][0]["text"] == ORDINARY.rstrip()
    assert (call["name"], json.loads(call["arguments"])) == ("weather", {"city": "Rome"})


async def post(app: object, body: object, answer: ASGIAnswer) -> None:
    await asgi_call(app, "POST", "/v1/responses", json.dumps(body).encode(), answer=answer)
