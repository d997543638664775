"""The judge of Responses' streams is judged: what it must not let pass."""

from collections.abc import Sequence
from typing import Any

import pytest

from ninfer.protocols.openai_responses.order import OrderChecker, OutOfOrder
from tests.protocols.openai_responses.test_encode import REPLY, new_answer, streamed, types

GOOD = streamed(REPLY, new_answer(summary=True))
KINDS = types(GOOD)


def judge(stream: Sequence[Any]) -> None:
    """The events under new numbers, so that order is judged by what they are."""
    checker = OrderChecker()
    for number, event in enumerate(stream):
        checker.take({**event, "sequence_number": number})
    checker.end()


def at(kind: str) -> int:
    return KINDS.index(kind)


def changed(kind: str, **members: Any) -> list[Any]:
    """The good stream with other members in the first event of a kind."""
    return [*GOOD[: at(kind)], {**GOOD[at(kind)], **members}, *GOOD[at(kind) + 1 :]]


def within(kind: str, name: str, **members: Any) -> list[Any]:
    """The same, with other members in the object `name` of that event."""
    return changed(kind, **{name: {**GOOD[at(kind)][name], **members}})


def test_the_good_stream_has_everything() -> None:
    judge(GOOD)
    assert {"reasoning_summary_text.delta", "function_call_arguments.done", "output_text.delta"} <= set(KINDS)


@pytest.mark.parametrize("place", range(len(GOOD)))
def test_no_event_can_be_left_out(place: int) -> None:
    with pytest.raises(OutOfOrder):
        judge([*GOOD[:place], *GOOD[place + 1 :]])


@pytest.mark.parametrize("place", [place for place, kind in enumerate(KINDS) if kind != "in_progress"])
def test_no_event_can_come_twice(place: int) -> None:
    with pytest.raises(OutOfOrder):
        judge([*GOOD[: place + 1], *GOOD[place:]])


@pytest.mark.parametrize("place", range(len(GOOD) - 1))
def test_no_two_neighbours_can_change_places(place: int) -> None:
    with pytest.raises(OutOfOrder):
        judge([*GOOD[:place], GOOD[place + 1], GOOD[place], *GOOD[place + 2 :]])


def test_numbers_rise() -> None:
    checker = OrderChecker()
    checker.take(GOOD[0])
    with pytest.raises(OutOfOrder, match="does not rise"):
        checker.take({**GOOD[1], "sequence_number": GOOD[0]["sequence_number"]})


def test_the_first_snapshot_may_break_a_silence() -> None:
    judge([*GOOD[:5], GOOD[1], *GOOD[5:]])
    with pytest.raises(OutOfOrder, match="another snapshot"):
        judge([*GOOD[:5], {**GOOD[1], "response": {**GOOD[1]["response"], "model": "n"}}, *GOOD[5:]])


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (changed("created", type="response.surprise"), "no event that clients know"),
        ([{name: value for name, value in GOOD[0].items() if name != "response"}, *GOOD[1:]], "lacks"),
        (within("completed", "response", id="resp_2"), "another Response's id"),
        (within("completed", "response", status="failed"), "has the status"),
        (within("completed", "response", output=[]), "other Items"),
        (within("completed", "response", usage=None), "without usage"),
        (within("completed", "response", more=1), "other keys"),
        (within("completed", "response", incomplete_details={}), "without its reason"),
        (changed("output_item.added", output_index=1), "another place"),
        (within("output_item.added", "item", status="completed"), "not in progress"),
        (within("output_item.added", "item", content=[{}]), "with its content"),
        (changed("reasoning_text.delta", item_id="other"), "another Item's id"),
        (changed("reasoning_text.delta", delta="other"), "not its deltas"),
        (changed("reasoning_text.done", text="other"), "not its deltas"),
        (changed("output_text.delta", type="response.reasoning_text.delta"), "in a part of type"),
        (changed("function_call_arguments.done", arguments="{}"), "not its deltas"),
        (within("output_item.done", "item", content=[]), "other content"),
        (within("output_item.done", "item", summary=[]), "another summary"),
    ],
)
def test_what_is_wrong_in_an_event_is_said(stream: list[Any], says: str) -> None:
    with pytest.raises(OutOfOrder, match=says):
        judge(stream)


def test_a_stream_ends_once() -> None:
    with pytest.raises(OutOfOrder, match="no terminal event"):
        judge(GOOD[:-1])
    with pytest.raises(OutOfOrder, match="after the end"):
        judge([*GOOD, GOOD[1]])
