"""Chat's answers: order and members of a stream, and that the aggregate is the same reply."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import (
    CallMade,
    Committed,
    Event,
    FinishReason,
    PromptProgress,
    Started,
    TextDelta,
    Timings,
    ToolCall,
)
from ninfer.protocols.openai_chat.encode import ChunkEncoder, Head, Shape, aggregate
from ninfer.protocols.openai_chat.order import OrderChecker
from ninfer.protocols.sse import DONE, frame_data
from ninfer.testing import finished, sse_data

HEAD = Head(id="chatcmpl-1", created=17, model="m")
STARTED = Started(prompt_tokens=11, cached_tokens=4)
USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 3,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}

TIMINGS = {
    "cache_n": 4,
    "prompt_n": 7,
    "prompt_ms": 250.0,
    "prompt_per_token_ms": 250 / 7,
    "prompt_per_second": 28.0,
    "predicted_n": 7,
    "predicted_ms": 500.0,
    "predicted_per_token_ms": 500 / 6,
    "predicted_per_second": 12.0,
}


def chunks(events: Sequence[Event], **shape: Any) -> list[Any]:
    """The chunks of a stream, which have passed the judge of their order."""
    encoder, checker = ChunkEncoder(HEAD, Shape(**shape)), OrderChecker()
    frames = [frame for event in events for frame in encoder.frames(event)]
    for frame in (*frames, DONE):
        checker.add(frame_data(frame))
    checker.finish()
    return [json.loads(data) for data in sse_data(b"".join(frames))]


async def folded(events: Sequence[Event], **shape: Any) -> Any:
    async def replay() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return await aggregate(HEAD, Shape(**shape), replay())


REPLY = (
    STARTED,
    PromptProgress(total_tokens=11, cached_tokens=4, processed_tokens=11, elapsed_s=0.1),
    TextDelta("hm", "reasoning"),
    TextDelta('He"l', "answer"),
    TextDelta("lö\n\u2028", "answer"),
    finished(),
)


@pytest.mark.contract("CHAT-038", "CHAT-037", "CHAT-041")
def test_a_stream() -> None:
    found = chunks(REPLY)
    assert [chunk["choices"][0]["delta"] for chunk in found] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": 'He"l'},
        {"content": "lö\n\u2028"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in found] == [None, None, None, None, "stop"]
    for chunk in found:
        # no usage that nobody asked for (SSE-04)
        assert set(chunk) - {"timings"} == {"id", "object", "created", "model", "choices"}
        assert (chunk["id"], chunk["object"]) == ("chatcmpl-1", "chat.completion.chunk")
        assert (chunk["created"], chunk["model"]) == (17, "m")
        assert chunk["choices"][0]["index"] == 0
        assert chunk["choices"][0]["logprobs"] is None


@pytest.mark.contract("CHAT-039", "CHAT-040", "D30")
def test_usage_in_a_stream() -> None:
    found = chunks(REPLY, include_usage=True)
    assert all(chunk["usage"] is None for chunk in found[:-1])
    assert found[-1]["choices"] == []
    assert found[-1]["usage"] == USAGE
    assert found[-2]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.contract("CHAT-019")
def test_the_usage_chunk_with_a_choice() -> None:
    last = chunks(REPLY, include_usage=True, usage_chunk_choice=True)[-1]
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}]
    assert last["usage"] == USAGE


@pytest.mark.contract("CHAT-041", "CHAT-037", "CHAT-040", "D30", "OBS-001")
async def test_an_aggregate() -> None:
    assert await folded(REPLY) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 17,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": 'He"llö\n\u2028',
                    "reasoning_content": "hm",
                    "refusal": None,
                    "annotations": [],
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
        "timings": TIMINGS,
    }


async def test_an_answer_without_reasoning_has_no_such_member() -> None:
    answer = await folded((STARTED, TextDelta("a", "answer"), finished()))
    assert "reasoning_content" not in answer["choices"][0]["message"]


@pytest.mark.contract("CHAT-043")
@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (FinishReason.STOP_TOKEN, "stop"),
        (FinishReason.STOP_STRING, "stop"),
        (FinishReason.OUTPUT_LIMIT, "length"),
        (FinishReason.CONTEXT_LIMIT, "length"),
    ],
)
async def test_finish_reasons(reason: FinishReason, word: str) -> None:
    events = (STARTED, finished(reason))
    assert (await folded(events))["choices"][0]["finish_reason"] == word
    assert chunks(events)[-1]["choices"][0]["finish_reason"] == word


def call(name: str = "f", id_: str = "call_1", **arguments: object) -> CallMade:
    return CallMade(ToolCall(id=id_, name=name, arguments=arguments))


@pytest.mark.contract("CHAT-024", "CHAT-044", "TMPL-006")
async def test_calls() -> None:
    events = (STARTED, TextDelta("Sure.", "answer"), call(z=1, a="ö"), call(id_="call_2"), finished())
    made = [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"z":1,"a":"ö"}'}},
        {"id": "call_2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    ]
    choice = (await folded(events))["choices"][0]
    assert choice["message"]["tool_calls"] == made
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Sure.", "tool_calls")
    found = chunks(events)
    assert [chunk["choices"][0]["delta"].get("tool_calls") for chunk in found[2:4]] == [
        [{"index": 0, **made[0]}],
        [{"index": 1, **made[1]}],
    ]
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert (await folded((STARTED, call(), finished())))["choices"][0]["message"]["content"] is None


@pytest.mark.contract("CHAT-044")
@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (FinishReason.STOP_TOKEN, "tool_calls"),
        (FinishReason.OUTPUT_LIMIT, "length"),
        (FinishReason.CONTEXT_LIMIT, "length"),
    ],
)
async def test_a_limit_that_cuts_a_turn_of_calls_stays_a_limit(reason: FinishReason, word: str) -> None:
    events = (STARTED, call(), finished(reason))
    assert (await folded(events))["choices"][0]["finish_reason"] == word
    assert chunks(events)[-1]["choices"][0]["finish_reason"] == word


@pytest.mark.contract("CHAT-022")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"input": "x = 1\n"}, "x = 1\n"),
        ({}, ""),
        ({"input": {"a": 1}}, '{"a":1}'),
        ({"code": "x"}, '{"code":"x"}'),
        ({"input": "a", "more": "b"}, '{"input":"a","more":"b"}'),
    ],
)
async def test_free_form_calls(arguments: dict[str, object], text: str) -> None:
    events = (STARTED, call("patch", **arguments), call("f", id_="call_2"), finished())
    made = (await folded(events, free_form=frozenset({"patch"})))["choices"][0]["message"]["tool_calls"]
    assert made[0] == {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": text}}
    assert made[1]["type"] == "function"
    assert chunks(events, free_form=frozenset({"patch"}))[1]["choices"][0]["delta"]["tool_calls"] == [
        {"index": 0, **made[0]}
    ]


kinds = st.sampled_from(["answer", "reasoning"])
texts = st.lists(st.builds(TextDelta, st.text(min_size=1, max_size=8), kinds))
values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=4), lambda inner: st.lists(inner))
calls = st.lists(
    st.builds(
        lambda name, arguments: CallMade(ToolCall(id=f"call_{name}", name=name, arguments=arguments)),
        st.sampled_from(["f", "patch"]),
        st.dictionaries(st.text(max_size=5), values, max_size=3),
    ),
    max_size=3,
)
shapes = st.fixed_dictionaries(
    {
        "include_usage": st.booleans(),
        "usage_chunk_choice": st.booleans(),
        "timings_per_token": st.booleans(),
        "progress": st.booleans(),
        "free_form": st.sampled_from([frozenset(), frozenset({"patch"})]),
    }
)
progress = st.lists(st.integers(4, 11), max_size=4).map(
    lambda steps: [
        PromptProgress(total_tokens=11, cached_tokens=4, processed_tokens=step, elapsed_s=step / 7)
        for step in sorted(steps)
    ]
)


@given(progress, texts, calls, st.sampled_from(list(FinishReason)), shapes)
async def test_stream_and_aggregate_say_the_same(
    units: list[Event], said: list[TextDelta], made: list[CallMade], reason: FinishReason, shape: dict[str, Any]
) -> None:
    committed = Committed(3, Timings(prompt_s=0.1, generation_s=0.2))
    said = [TextDelta(delta.text, delta.channel, committed) for delta in said]
    events = (STARTED, *units, *said, *made, finished(reason))
    answer = await folded(events, **shape)
    found = chunks(events, **shape)
    choice = answer["choices"][0]
    deltas = [chunk["choices"][0]["delta"] for chunk in found if chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == (choice["message"]["content"] or "")
    reasoning = "".join(delta.get("reasoning_content", "") for delta in deltas)
    assert reasoning == choice["message"].get("reasoning_content", "")
    streamed = [one for delta in deltas for one in delta.get("tool_calls", [])]
    assert [{k: v for k, v in one.items() if k != "index"} for one in streamed] == choice["message"].get(
        "tool_calls", []
    )
    reasons = [one["finish_reason"] for chunk in found for one in chunk["choices"] if one["finish_reason"]]
    assert reasons == [choice["finish_reason"]]
    assert found[-1]["timings"] == answer["timings"]
    assert found[-1].get("usage") == (answer["usage"] if shape["include_usage"] else None)
