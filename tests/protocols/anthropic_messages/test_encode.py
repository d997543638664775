"""Answers of Messages: order and members of a stream, and that the aggregate is the same message."""

import itertools
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import (
    CallMade,
    Event,
    FinishReason,
    PromptProgress,
    Reasoning,
    Started,
    Text,
    TextDelta,
    ToolCall,
)
from ninfer.protocols.anthropic_messages.encode import Head, MessageEncoder, aggregate
from ninfer.protocols.anthropic_messages.fold import MessageFold
from ninfer.protocols.anthropic_messages.order import OrderChecker, OrderViolation
from ninfer.testing import finished
from tests.protocols.anthropic_messages.bodies import USER, turns

contract = pytest.mark.contract
HEAD = Head(id="msg_1", model="label")
STARTED = Started(prompt_tokens=11, cached_tokens=4)
CALL = CallMade(ToolCall(id="toolu_1", name="look", arguments={"z": "ü\u2028", "a": [1, None]}))
USAGE = {
    "input_tokens": 7,
    "cache_creation_input_tokens": None,
    "cache_read_input_tokens": 4,
    "server_tool_use": None,
    "output_tokens": 7,
    "output_tokens_details": {"thinking_tokens": 3},
}
FULL_USAGE = {**USAGE, "cache_creation": None, "inference_geo": None, "service_tier": None}


def parsed(frames: Iterable[bytes]) -> list[Any]:
    """The events of a stream; the name of each is its type."""
    found = []
    for frame in b"".join(frames).decode().split("\n\n")[:-1]:
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def streamed(events: Sequence[Event], *, show_thinking: bool = True) -> list[Any]:
    encoder = MessageEncoder(HEAD, show_thinking=show_thinking)
    return parsed(frame for event in events for frame in encoder.frames(event))


async def message(events: Sequence[Event], *, show_thinking: bool = True) -> Any:
    async def replay() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return await aggregate(MessageEncoder(HEAD, show_thinking=show_thinking), replay())


def delta(index: int, **members: object) -> dict[str, object]:
    return {"type": "content_block_delta", "index": index, "delta": members}


def start(index: int, **block: object) -> dict[str, object]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def stop(index: int) -> dict[str, object]:
    return {"type": "content_block_stop", "index": index}


REPLY = (
    STARTED,
    PromptProgress(total_tokens=11, cached_tokens=4, processed_tokens=11, elapsed_s=0.1),
    TextDelta("h", "reasoning"),
    TextDelta("m", "reasoning"),
    TextDelta('He"l', "answer"),
    TextDelta("lö\n\u2028", "answer"),
    CALL,
    finished(),
)


@contract("ANTH-048", "ANTH-019", "ANTH-042")
def test_a_stream() -> None:
    """ANT-10: a call begins with an empty input."""
    first, *blocks, last, end = streamed(REPLY)
    assert first["message"] == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "label",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "usage": {**FULL_USAGE, "output_tokens": 0, "output_tokens_details": {"thinking_tokens": 0}},
    }
    assert blocks == [
        start(0, type="thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="h"),
        delta(0, type="thinking_delta", thinking="m"),
        delta(0, type="signature_delta", signature="ninfer-visible.v1"),
        stop(0),
        start(1, type="text", text="", citations=None),
        delta(1, type="text_delta", text='He"l'),
        delta(1, type="text_delta", text="lö\n\u2028"),
        stop(1),
        start(2, type="tool_use", id="toolu_1", name="look", input={}, caller={"type": "direct"}),
        delta(2, type="input_json_delta", partial_json='{"z":"ü\u2028","a":[1,null]}'),
        stop(2),
    ]
    stopped = {"stop_reason": "tool_use", "stop_sequence": None, "stop_details": None, "container": None}
    assert last == {"type": "message_delta", "delta": stopped, "usage": USAGE}
    assert end == {"type": "message_stop"}


@contract("D30", "ANTH-041", "ANTH-043", "TMPL-006")
async def test_the_same_as_one_message() -> None:
    """ANT-03, ANT-11: read and other tokens add up to the prompt; every counter is there."""
    found = await message(REPLY)
    assert found == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "label",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "ninfer-visible.v1"},
            {"type": "text", "text": 'He"llö\n\u2028', "citations": None},
            {
                "type": "tool_use",
                "id": "toolu_1",
                "name": "look",
                "input": {"z": "ü\u2028", "a": [1, None]},
                "caller": {"type": "direct"},
            },
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "usage": FULL_USAGE,
    }
    assert list(found["content"][2]["input"]) == ["z", "a"]
    assert found["usage"]["input_tokens"] + found["usage"]["cache_read_input_tokens"] == STARTED.prompt_tokens


@pytest.mark.parametrize(
    ("reason", "called", "expected"),
    [
        pytest.param(FinishReason.STOP_TOKEN, False, "end_turn", marks=contract("ANTH-015")),
        pytest.param(FinishReason.STOP_STRING, False, "stop_sequence", marks=contract("ANTH-013")),
        pytest.param(FinishReason.OUTPUT_LIMIT, False, "max_tokens", marks=contract("ANTH-015")),
        pytest.param(FinishReason.CONTEXT_LIMIT, False, "model_context_window_exceeded", marks=contract("ANTH-014")),
        pytest.param(FinishReason.STOP_TOKEN, True, "tool_use", marks=contract("ANTH-016")),
        pytest.param(FinishReason.STOP_STRING, True, "tool_use", marks=contract("ANTH-016")),
        pytest.param(FinishReason.OUTPUT_LIMIT, True, "max_tokens", marks=contract("ANTH-016")),
        pytest.param(FinishReason.CONTEXT_LIMIT, True, "model_context_window_exceeded", marks=contract("ANTH-016")),
    ],
)
async def test_why_it_ended(reason: FinishReason, called: bool, expected: str) -> None:
    stop_string = "END" if reason is FinishReason.STOP_STRING else None
    events = (STARTED, *([CALL] if called else []), finished(reason, stop_string))
    found = await message(events)
    assert (found["stop_reason"], found["stop_sequence"]) == (expected, stop_string)


async def test_an_answer_of_nothing() -> None:
    assert [event["type"] for event in streamed((STARTED, finished()))] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    assert (await message((STARTED, finished())))["content"] == []


async def test_a_message_without_an_end_is_none() -> None:
    with pytest.raises(RuntimeError):
        await message(REPLY[:-1])


# Reasoning that is not shown


@contract("ANTH-021", "ANTH-022", "D25")
async def test_hidden_reasoning_travels_in_the_signature() -> None:
    signature = "ninfer-reasoning.v1:aG0="
    assert streamed(REPLY, show_thinking=False)[1:4] == [
        start(0, type="thinking", thinking="", signature=""),
        delta(0, type="signature_delta", signature=signature),
        stop(0),
    ]
    found = await message(REPLY, show_thinking=False)
    assert found["content"][0] == {"type": "thinking", "thinking": "", "signature": signature}


# Any events

texts = st.text(min_size=1, max_size=8)
values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=4), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)), max_leaves=5)  # fmt: skip
calls = st.builds(
    lambda name, arguments, at: CallMade(ToolCall(id=f"toolu_{at}", name=name, arguments=arguments)),
    texts,
    st.dictionaries(st.text(max_size=4), values, max_size=3),
    st.integers(0, 99),
)
outputs = st.lists(
    st.builds(TextDelta, texts, st.sampled_from(["answer", "reasoning"])) | calls,
    max_size=12,
)


@contract("ANTH-048", "ANTH-043", "ANTH-019")
@given(outputs, st.sampled_from(FinishReason), st.booleans())
async def test_every_stream_is_in_order_and_folds_to_the_message(
    output: Sequence[Event], reason: FinishReason, show_thinking: bool
) -> None:
    events = (STARTED, *output, finished(reason, "END" if reason is FinishReason.STOP_STRING else None))
    stream = streamed(events, show_thinking=show_thinking)
    checker, fold = OrderChecker(), MessageFold()
    for event in stream:
        checker.add(event)
        fold.add(event)
    checker.finish()
    assert fold.message() == await message(events, show_thinking=show_thinking)
    answer = "".join(one.text for one in output if isinstance(one, TextDelta) and one.channel == "answer")
    assert "".join(block["text"] for block in content(fold) if block["type"] == "text") == answer
    assert [block["input"] for block in content(fold) if block["type"] == "tool_use"] == [
        one.call.arguments for one in output if isinstance(one, CallMade)
    ]


def content(fold: MessageFold) -> list[Any]:
    found = fold.message()["content"]
    assert isinstance(found, list)
    return found


@contract("ANTH-020", "ANTH-023", "TMPL-006")
@given(outputs, st.booleans())
async def test_an_answer_comes_back_as_it_was(output: Sequence[Event], show_thinking: bool) -> None:
    """What the client replays is the turn that the model made, shown or hidden."""
    made = await message((STARTED, *output, finished()), show_thinking=show_thinking)
    replayed = turns(USER, {"role": "assistant", "content": made["content"]}, *results(made["content"]))[1]
    texts_of = {
        channel: "".join(one.text for one in output if isinstance(one, TextDelta) and one.channel == channel)
        for channel in ("answer", "reasoning")
    }
    assert "".join(part.text for part in replayed.parts if isinstance(part, Text)) == texts_of["answer"]
    assert "".join(part.text for part in replayed.parts if isinstance(part, Reasoning)) == texts_of["reasoning"]
    assert [json.dumps(call.arguments) for call in replayed.calls] == [
        json.dumps(one.call.arguments) for one in output if isinstance(one, CallMade)
    ]


def results(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """A user message with a result for every call of `blocks`, whose ids are made different first."""
    found = []
    for at, block in enumerate(blocks):
        if block["type"] == "tool_use":
            assert isinstance(block, dict)
            block["id"] = f"toolu_{at}"
            found.append({"type": "tool_result", "tool_use_id": block["id"]})
    return [{"role": "user", "content": found or "next"}]


# The checker itself

GOOD = streamed(REPLY)


TEXT_DELTAS = ("thinking_delta", "text_delta")
KINDS = [event.get("delta", {}).get("type") or event["type"] for event in GOOD]
# Where the absence, the order or the repetition of text cannot be seen.
SEEN_MISSING = [at for at, kind in enumerate(KINDS) if kind not in (*TEXT_DELTAS, "input_json_delta")]
SEEN_TWICE = [at for at, kind in enumerate(KINDS) if kind not in TEXT_DELTAS]
SEEN_CHANGED = [at for at, (kind, after) in enumerate(itertools.pairwise(KINDS)) if kind != after]


@pytest.mark.parametrize("missing", SEEN_MISSING)
def test_no_event_can_be_left_out(missing: int) -> None:
    with pytest.raises(OrderViolation):
        check([*GOOD[:missing], *GOOD[missing + 1 :]])


@pytest.mark.parametrize("at", SEEN_CHANGED)
def test_no_two_neighbours_can_change_places(at: int) -> None:
    with pytest.raises(OrderViolation):
        check([*GOOD[:at], GOOD[at + 1], GOOD[at], *GOOD[at + 2 :]])


@pytest.mark.parametrize("at", SEEN_TWICE)
def test_no_event_can_come_twice(at: int) -> None:
    with pytest.raises(OrderViolation):
        check([*GOOD[: at + 1], *GOOD[at:]])


def test_pings_and_errors() -> None:
    ping, error = {"type": "ping"}, {"type": "error", "error": {"type": "api_error", "message": "x"}}
    check([GOOD[0], ping, *GOOD[1:5], ping, *GOOD[5:]])
    check([*GOOD[:4], error])
    check([error])
    for events in ([ping, *GOOD], [*GOOD[:4], error, GOOD[4]], [*GOOD, ping], [{"type": "surprise"}]):
        with pytest.raises(OrderViolation):
            check(events)


def check(events: Iterable[Mapping[str, Any]]) -> None:
    checker = OrderChecker()
    for event in events:
        checker.add(event)
    checker.finish()
