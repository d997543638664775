"""The judge of Chat's streams is judged: what it must not let pass."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from ninfer.conversation import CallMade, PromptProgress, ToolCall
from ninfer.protocols.openai_chat.order import OrderChecker, OrderViolation
from ninfer.protocols.sse import DONE_DATA
from tests.protocols.openai_chat.test_encode import REPLY, chunks

CALL = CallMade(ToolCall(id="call_1", name="f", arguments={"a": 1}))
LATER = PromptProgress(total_tokens=11, cached_tokens=4, processed_tokens=9, elapsed_s=0.1)
GOOD = [*chunks((REPLY[0], LATER, *REPLY[1:-1], CALL, REPLY[-1]), progress=True, include_usage=True), DONE_DATA]


def kind(chunk: Any) -> str:
    if isinstance(chunk, str):
        return "done"
    if not chunk["choices"]:
        return "usage"
    choice = chunk["choices"][0]
    if "prompt_progress" in chunk:
        return "progress"
    return "finish" if choice["finish_reason"] else next(iter(choice["delta"]))


KINDS = [kind(chunk) for chunk in GOOD]
TEXTS = ("content", "reasoning_content")
# Where the absence, the order or the repetition of text, or a step of progress, cannot be seen.
SEEN_MISSING = [at for at, one in enumerate(KINDS) if one not in TEXTS and KINDS[at - 1] != "progress"]
SEEN_TWICE = [at for at, one in enumerate(KINDS) if one not in TEXTS]
SEEN_CHANGED = [at for at, pair in enumerate(itertools.pairwise(KINDS)) if not set(pair) <= set(TEXTS)]


def judge(stream: Sequence[Any]) -> None:
    checker = OrderChecker()
    for chunk in stream:
        checker.add(chunk)
    checker.finish()


def changed(at: int, **members: Any) -> list[Any]:
    """The good stream with other members in the chunk at `at`."""
    return [*GOOD[:at], {**GOOD[at], **members}, *GOOD[at + 1 :]]


def choice(at: int, **members: Any) -> list[dict[str, Any]]:
    return [{**GOOD[at]["choices"][0], **members}]


def test_the_good_stream_has_everything() -> None:
    judge(GOOD)
    assert set(KINDS) == {"role", "progress", *TEXTS, "tool_calls", "finish", "usage", "done"}


@pytest.mark.parametrize("at", SEEN_MISSING)
def test_no_chunk_can_be_left_out(at: int) -> None:
    with pytest.raises(OrderViolation):
        judge([*GOOD[:at], *GOOD[at + 1 :]])


@pytest.mark.parametrize("at", SEEN_TWICE)
def test_no_chunk_can_come_twice(at: int) -> None:
    with pytest.raises(OrderViolation):
        judge([*GOOD[: at + 1], *GOOD[at:]])


@pytest.mark.parametrize("at", SEEN_CHANGED)
def test_no_two_neighbours_can_change_places(at: int) -> None:
    with pytest.raises(OrderViolation):
        judge([*GOOD[:at], GOOD[at + 1], GOOD[at], *GOOD[at + 2 :]])


CALL_AT, TEXT_AT, FINISH_AT = (KINDS.index(one) for one in ("tool_calls", "content", "finish"))
DELTA = GOOD[CALL_AT]["choices"][0]["delta"]["tool_calls"][0]


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (changed(TEXT_AT, id="other"), "change"),
        (changed(TEXT_AT, object="chat.completion"), "not called one"),
        (changed(TEXT_AT, choices=GOOD[TEXT_AT]["choices"] * 2), "one choice"),
        (changed(TEXT_AT, choices=choice(TEXT_AT, delta={"content": ""})), "without text"),
        (changed(TEXT_AT, choices=choice(TEXT_AT, delta={"content": "a", "reasoning_content": "b"})), "a delta of"),
        (changed(CALL_AT, choices=choice(CALL_AT, delta={"tool_calls": [{**DELTA, "index": 1}]})), "is numbered 1"),
        (changed(CALL_AT, choices=choice(CALL_AT, delta={"tool_calls": [{**DELTA, "id": ""}]})), "without an id"),
        (
            changed(
                CALL_AT, choices=choice(CALL_AT, delta={"tool_calls": [{**DELTA, "function": {"arguments": "[]"}}]})
            ),
            "no JSON object",
        ),
        (changed(FINISH_AT, choices=choice(FINISH_AT, delta={"content": "a"})), "beside a delta"),
        (changed(FINISH_AT + 1, choices=choice(FINISH_AT, delta={"content": "a"})), "the usage chunk says"),
        (changed(FINISH_AT + 1, usage=None), "without usage after the finish"),
        ([*GOOD[:3], {"error": {}}], "without a message"),
        ([*GOOD[:3], {"error": {"message": "x"}}, DONE_DATA], "after the end"),
        ([*GOOD[:3], "[ENDE]"], "no chunk"),
    ],
)
def test_what_is_wrong_in_a_chunk_is_said(stream: list[Any], says: str) -> None:
    with pytest.raises(OrderViolation, match=says):
        judge(stream)


def test_an_error_ends_a_stream_anywhere() -> None:
    error = {"error": {"message": "x"}}
    for at, chunk in enumerate(GOOD):
        judge([*GOOD[:at], error])
        with pytest.raises(OrderViolation, match="after the end"):
            judge([*GOOD[:at], error, chunk])
