"""Chat's answers: order and members of a stream, and that the aggregate is the same reply."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import Event, FinishReason, PromptProgress, Started, TextDelta
from ninfer.protocols.openai_chat.encode import ChunkEncoder, Head, aggregate
from tests.fakes.host import finished
from tests.fakes.server import sse_data

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


def chunks(events: Sequence[Event], *, include_usage: bool = False, usage_chunk_choice: bool = False) -> list[Any]:
    encoder = ChunkEncoder(HEAD, include_usage=include_usage, usage_chunk_choice=usage_chunk_choice)
    stream = b"".join(frame for event in events for frame in encoder.frames(event))
    return [json.loads(data) for data in sse_data(stream)]


async def folded(events: Sequence[Event]) -> Any:
    async def replay() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return await aggregate(HEAD, replay())


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
        assert set(chunk) == {"id", "object", "created", "model", "choices"}  # no usage that nobody asked for (SSE-04)
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


@pytest.mark.contract("CHAT-041", "CHAT-037", "CHAT-040", "D30")
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


deltas = st.lists(st.builds(TextDelta, st.text(min_size=1, max_size=8), st.sampled_from(["answer", "reasoning"])))


@given(deltas)
async def test_stream_and_aggregate_say_the_same(replies: list[TextDelta]) -> None:
    events = (STARTED, *replies, finished())
    message = (await folded(events))["choices"][0]["message"]
    found = [chunk["choices"][0]["delta"] for chunk in chunks(events)]
    assert "".join(delta.get("content", "") for delta in found) == message["content"]
    assert "".join(delta.get("reasoning_content", "") for delta in found) == message.get("reasoning_content", "")
