"""What may stand in an event stream of any protocol: names that the SDKs know, data, comments (D32)."""

import json
import re
from collections.abc import Callable
from typing import Any, get_args

import pytest
import trio
import trio.testing
from anthropic.types import RawMessageStreamEvent
from openai.types.responses import ResponseStreamEvent

from ninfer.conversation import CallMade, InternalError, ToolCall
from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.protocols.plugin import Protocol
from ninfer.server.app import create_app
from ninfer.testing import CARD, FakeHost, Step, finished, post_json, script

MESSAGES = [{"role": "user", "content": "Hi"}]
ASKED: dict[Callable[[Any], Protocol], tuple[str, dict[str, object]]] = {
    OpenAIChat: ("/v1/chat/completions", {"messages": MESSAGES, "stream_options": {"include_usage": True}}),
    OpenAIResponses: ("/v1/responses", {"input": "Hi", "reasoning": {"summary": "auto"}}),
    AnthropicMessages: ("/v1/messages", {"messages": MESSAGES, "max_tokens": 9}),
}
LINE = re.compile(r"|: .+|event: [a-z_.]+|data: .+")


def types_of(union: Any) -> set[str]:
    """The values of `type` that the members of an SDK's union of events have."""
    members = get_args(get_args(union)[0])
    return {name for member in members for name in get_args(member.model_fields["type"].annotation)}


KNOWN = {
    OpenAIChat: set[str](),
    OpenAIResponses: types_of(ResponseStreamEvent),
    AnthropicMessages: types_of(RawMessageStreamEvent) | {"error"},
}


@pytest.mark.contract("D32")
@pytest.mark.parametrize("protocol", ASKED)
@pytest.mark.parametrize("end", [finished(), InternalError("broken")], ids=["whole", "failed"])
async def test_lines(protocol: Callable[[Any], Protocol], end: Step, autojump_clock: trio.testing.MockClock) -> None:
    call = CallMade(ToolCall(id="call_1", name="f", arguments={"a": 1}))
    started, *said, _ = script("Hel", "lo", reasoning=["hm"])
    host = FakeHost(steps=[12, started, 130, *said, call, end])  # silences that comments and snapshots break
    path, body = ASKED[protocol]
    answer = await post_json(create_app(host, [protocol(host)]), path, {"model": CARD.id, "stream": True, **body})
    assert answer.complete
    lines = answer.body.decode().split("\n")
    assert all(LINE.fullmatch(line) for line in lines), lines
    assert any(line.startswith(":") for line in lines)
    assert {line.removeprefix("event: ") for line in lines if line.startswith("event")} <= KNOWN[protocol]
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    assert {one["type"] for one in data if "type" in one} <= KNOWN[protocol]
