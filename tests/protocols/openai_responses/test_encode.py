"""The events of a Response and its object: order, members, and that both come from one state."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import (
    CallMade,
    Event,
    Finished,
    FinishReason,
    InternalError,
    InvalidRequest,
    PromptProgress,
    RequestError,
    Started,
    TextDelta,
    ToolCall,
)
from ninfer.protocols.openai_responses.encode import SUMMARY_PLACEHOLDER, Answer, Head, WireEvent, frame
from ninfer.protocols.openai_responses.items import own_items
from ninfer.protocols.openai_responses.order import OrderChecker
from ninfer.protocols.openai_responses.store import OVERFLOW_CODE
from ninfer.testing import finished

contract = pytest.mark.contract

STARTED = Started(prompt_tokens=11, cached_tokens=4)
PLACEHOLDER = [{"type": "summary_text", "text": SUMMARY_PLACEHOLDER}]
LIMITS = (FinishReason.OUTPUT_LIMIT, FinishReason.CONTEXT_LIMIT)


def thought(text: str) -> TextDelta:
    return TextDelta(text, "reasoning")


def said(text: str) -> TextDelta:
    return TextDelta(text, "answer")


def called(name: str = "f", **arguments: object) -> CallMade:
    return CallMade(ToolCall(id="call_7", name=name, arguments=arguments))


def origin(identity: str) -> tuple[str | None, str]:
    namespace, _, name = identity.rpartition("__")
    return namespace or None, name


def new_answer(*, summary: bool = False, mirror: bool = False) -> Answer:
    head = Head(id="resp_1", created_at=17, model="m", echoed={"temperature": 1.0, "store": True})
    return Answer(head, summary=summary, mirror=mirror, origin=origin)


def streamed(events: Sequence[Event], answer: Answer) -> list[Any]:
    """All wire events, judged."""
    found: list[WireEvent] = []
    for event in events:
        found += answer.finish(event) + answer.end() if isinstance(event, Finished) else answer.feed(event)
    return judged(found)


def judged(events: Sequence[WireEvent]) -> list[Any]:
    checker = OrderChecker()
    read = [json.loads(frame(event).decode().split("\ndata: ")[1]) for event in events]
    for event in read:
        checker.take(event)
    checker.end()
    return read


def types(events: Sequence[Any]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


REPLY = (
    STARTED,
    PromptProgress(total_tokens=11, cached_tokens=4, processed_tokens=11, elapsed_s=0.1),
    thought("hm"),
    said("Hel"),
    said("lö\n\u2028"),
    called("files__read", path="a", at=1),
    finished(),
)


@contract("RSSE-003", "RSSE-004", "RSSE-005", "RSSE-011", "RSSE-006")
def test_the_order_of_a_stream() -> None:
    assert types(streamed(REPLY, new_answer())) == [
        "created",
        "in_progress",
        "output_item.added",
        *("content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"),
        "output_item.done",
        "output_item.added",
        *("content_part.added", "output_text.delta", "output_text.delta", "output_text.done", "content_part.done"),
        "output_item.done",
        "output_item.added",
        *("function_call_arguments.delta", "function_call_arguments.done"),
        "output_item.done",
        "completed",
    ]


@contract("RSSE-001", "RSSE-002", "D32")
def test_frames() -> None:
    answer = new_answer()
    frames = [frame(event) for event in answer.open() + answer.feed(said("a\nb")) + answer.finish(finished())]
    for number, one in enumerate(frames):
        name, data, *rest = one.decode().split("\n")
        assert rest == ["", ""]
        event = json.loads(data.removeprefix("data: "))
        assert (name, event["sequence_number"]) == (f"event: {event['type']}", number)


@contract("ROBJ-001", "ROBJ-003", "ROBJ-007", "RITEM-023", "RITEM-025")
def test_the_object() -> None:
    answer = new_answer()
    last = streamed(REPLY, answer)[-1]["response"]
    assert last == answer.body
    reasoning, message, call = last["output"]
    assert (last["object"], last["status"], last["created_at"], last["model"]) == ("response", "completed", 17, "m")
    assert reasoning.pop("id").startswith("rs_")
    assert reasoning == {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "status": "completed",
    }
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hellö\n\u2028", "annotations": [], "logprobs": []}],
    }
    assert call.pop("id").startswith("fc_")
    assert call == {
        "type": "function_call",
        "call_id": "call_7",
        "namespace": "files",
        "name": "read",
        "arguments": '{"path":"a","at":1}',
        "status": "completed",
    }


@contract("RITEM-025")
def test_call_ids_look_like_call_ids() -> None:
    answer = new_answer()
    streamed((STARTED, CallMade(ToolCall(id="8f3", name="f", arguments={})), finished()), answer)
    (item,) = answer.output
    assert item["call_id"] == "call_8f3"
    assert item["id"] != item["call_id"]


@contract("ROBJ-012", "ROBJ-013", "ROBJ-014", "ROBJ-015", "D30")
def test_usage() -> None:
    answer = new_answer()
    first = streamed((STARTED, finished()), answer)[0]
    assert first["response"]["usage"] is None
    assert answer.body["usage"] == {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 18,
    }


@pytest.mark.parametrize("reason", FinishReason)
@contract("ROBJ-002", "ROBJ-008", "ROBJ-010", "RSSE-006")
def test_ends(reason: FinishReason) -> None:
    answer = new_answer()
    events = streamed((STARTED, said("a"), finished(reason)), answer)
    limited = reason in LIMITS
    status = "incomplete" if limited else "completed"
    assert answer.body["status"] == status
    assert answer.body["incomplete_details"] == ({"reason": "max_output_tokens"} if limited else None)  # RSP-09
    assert (answer.body["completed_at"] is None) == limited
    assert answer.output[0]["status"] == status
    assert types(events)[-1] == status


@contract("ROBJ-011")
def test_reasoning_alone_has_no_message_beside_it() -> None:
    answer = new_answer()
    streamed((STARTED, thought("hm"), finished(FinishReason.OUTPUT_LIMIT)), answer)
    assert [item["type"] for item in answer.output] == ["reasoning"]
    empty = new_answer()
    streamed((STARTED, finished(FinishReason.OUTPUT_LIMIT)), empty)
    assert empty.body["output"] == []


@contract("D23", "RSSE-007", "RSSE-008", "ROBJ-004", "RESP-030")
def test_a_summary_comes_with_its_events() -> None:
    answer = new_answer(summary=True)
    events = streamed((STARTED, thought("hm"), finished()), answer)
    assert types(events)[2:9] == [
        "output_item.added",
        *("reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done"),
        "content_part.added",
        "reasoning_text.delta",
    ]
    assert events[2]["item"]["summary"] == []
    assert [event["summary_index"] for event in events[3:7]] == [0, 0, 0, 0]
    assert events[-2]["item"]["summary"] == answer.output[0]["summary"] == PLACEHOLDER


@contract("RSSE-009", "ROBJ-004")
def test_no_summary_unless_asked() -> None:
    answer = new_answer()
    assert not any("summary" in kind for kind in types(streamed((STARTED, thought("hm"), finished()), answer)))
    assert answer.output[0]["summary"] == []


@contract("ROBJ-005", "RSSE-010", "RESP-030")
def test_the_mirror() -> None:
    answer = new_answer(mirror=True)
    events = streamed((STARTED, thought("h"), thought("m"), said("a"), finished()), answer)
    added, done, *_ = [event["item"] for event in events if "item" in event]
    assert "encrypted_content" not in added
    assert done["encrypted_content"] == answer.output[0]["encrypted_content"] == "hm"
    assert "encrypted_content" not in answer.output[1]
    plain = new_answer()
    streamed((STARTED, thought("hm"), finished()), plain)
    assert "encrypted_content" not in plain.output[0]


@contract("ROBJ-006")
def test_no_output_text_on_the_wire() -> None:
    answer = new_answer()
    streamed(REPLY, answer)
    assert "output_text" not in answer.body


@contract("D31", "D32")
def test_a_long_silence_repeats_the_first_snapshot() -> None:
    answer = new_answer()
    events = [*answer.still_running(), *answer.feed(said("a")), *answer.still_running()]
    found = judged([*events, *answer.feed(said("b")), *answer.finish(finished()), *answer.end()])
    repeated = [event for event in found if event["type"] == "response.in_progress"]
    assert len(repeated) == 2
    assert repeated[0]["response"] == repeated[1]["response"]


@pytest.mark.parametrize("before", [(), (STARTED,), (STARTED, thought("a"), said("b"))], ids=len)
@contract("ROBJ-009", "RSSE-006")
def test_a_failure(before: Sequence[Event]) -> None:
    answer = new_answer()
    events = [event for one in before for event in answer.feed(one)]
    failure = answer.failed(InternalError("a check failed", code="engine_check"))
    last = judged([*events, *failure])[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"] == {"code": "engine_check", "message": "a check failed"}
    assert last["response"]["status"] == "failed"
    assert [item["status"] for item in last["response"]["output"]] == (
        ["completed", "incomplete"] if len(before) > 1 else []
    )
    assert answer.failed(InternalError("again")) == []  # nothing follows a terminal event


@contract("RSTORE-018")
def test_a_response_too_large_to_keep_is_not_returned() -> None:
    answer = new_answer()
    events = [*answer.feed(said("a")), *answer.finish(finished())]
    found = judged([*events, *answer.failed(InvalidRequest("too large", code=OVERFLOW_CODE))])
    assert found[-1]["response"]["output"] == []


@contract("D13", "ROBJ-002")
def test_a_cancelled_response_keeps_what_there_was() -> None:
    answer = new_answer()
    for event in (STARTED, thought("a"), said("b")):
        answer.feed(event)
    answer.cancelled()
    assert (answer.body["status"], answer.body["completed_at"]) == ("cancelled", None)
    assert [(item["type"], item["status"]) for item in answer.output] == [
        ("reasoning", "completed"),
        ("message", "incomplete"),
    ]


steps = st.lists(
    st.builds(TextDelta, st.text(min_size=1, max_size=8), st.sampled_from(["answer", "reasoning"]))
    | st.builds(called, st.sampled_from(["f", "ns__f"]), a=st.text(max_size=5))
    | st.just(PromptProgress(total_tokens=2, cached_tokens=0, processed_tokens=1, elapsed_s=1.0))
    | st.none(),
    max_size=12,
)


@given(steps, st.sampled_from(FinishReason), st.booleans(), st.booleans(), st.none() | st.integers(0, 12))
@contract("RSSE-012", "RSSE-006", "RSSE-009")
def test_any_events_make_a_clean_stream(
    script: list[Event | None], reason: FinishReason, summary: bool, mirror: bool, fails_at: int | None
) -> None:
    answer = new_answer(summary=summary, mirror=mirror)
    events: list[WireEvent] = answer.feed(STARTED)
    error: RequestError | None = None
    for at, step in enumerate(script):
        if at == fails_at:
            error = InternalError("broken")
            break
        events += answer.still_running() if step is None else answer.feed(step)
    events += answer.failed(error) if error else answer.finish(finished(reason)) + answer.end()
    found = judged(events)
    last = found[-1]["response"]
    assert last == answer.body
    assert (last["status"] == "failed") == (error is not None)
    assert all(
        event["item_id"] == last["output"][event["output_index"]]["id"] for event in found if "item_id" in event
    )  # RSP-06
    for channel, kind in (("answer", "output_text"), ("reasoning", "reasoning_text")):
        sent = "".join(
            step.text for step in script[:fails_at] if isinstance(step, TextDelta) and step.channel == channel
        )
        deltas = "".join(event["delta"] for event in found if event["type"] == f"response.{kind}.delta")
        parts = [part for item in last["output"] for part in item.get("content", ()) if part["type"] == kind]
        assert deltas == sent == "".join(part["text"] for part in parts)


@given(steps)
def test_output_can_be_read_as_history(script: list[Event | None]) -> None:
    answer = new_answer(mirror=True)
    for step in script:
        if step is not None:
            answer.feed(step)
    answer.finish(finished())
    assert [item.id for item in own_items(answer.output)] == [item["id"] for item in answer.output]
