"""The kit for authors of protocols: scripts that no host would play are refused, samples are all there."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from ninfer.conversation import (
    CallMade,
    Event,
    Finished,
    FinishReason,
    InternalError,
    PromptProgress,
    Started,
    TextDelta,
    errors,
)
from ninfer.testing import (
    FakeHost,
    OutOfOrder,
    Step,
    call_made,
    check_order,
    error_samples,
    finished,
    generations,
    json_lines,
    script,
    sse_data,
)

STARTED = Started(prompt_tokens=11, cached_tokens=4)


def progress(done: int) -> PromptProgress:
    return PromptProgress(total_tokens=11, cached_tokens=4, processed_tokens=done, elapsed_s=0.1)


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ([TextDelta("a", "answer")], "TextDelta comes before Started"),
        ([finished()], "Finished comes before Started"),
        ([STARTED, STARTED], "Started comes twice"),
        ([*script("a"), TextDelta("b", "answer")], "TextDelta comes after Finished"),
        ([*script("a"), finished()], "Finished comes after Finished"),
        (script(""), "TextDelta is empty"),
        ([STARTED, 3.0, call_made("f", {}), progress(11)], "PromptProgress comes after the first output"),
        ([STARTED, progress(11), progress(4)], "PromptProgress moves backwards"),
        ([STARTED, progress(12)], "PromptProgress moves backwards or too far"),
    ],
)
def test_a_script_that_no_host_would_play_is_refused(steps: Sequence[Step], fault: str) -> None:
    with pytest.raises(OutOfOrder, match=fault):
        check_order(steps)
    with pytest.raises(OutOfOrder, match=fault):
        FakeHost(steps=steps)
    host = FakeHost()
    with pytest.raises(OutOfOrder, match=fault):
        host.steps = steps


async def played(host: FakeHost) -> list[Event]:
    request: Any = object()
    async with host.generate(request) as events:
        return [event async for event in events]


async def test_a_host_plays_its_script_and_keeps_the_books(autojump_clock: trio.testing.MockClock) -> None:
    begin_s = trio.current_time()
    gate = trio.Event()
    gate.set()
    host = FakeHost(steps=[7, *script("a"), gate])
    assert await played(host) == script("a")
    assert trio.current_time() - begin_s == pytest.approx(7)
    host.steps = [*script("a")[:-1], InternalError("broken")]
    with pytest.raises(InternalError):
        await played(host)
    assert (len(host.requests), host.open_generations, host.left) == (2, 0, 2)


async def test_the_samples_hold_every_kind() -> None:
    found = [event for steps in generations().values() for event in await played(FakeHost(steps=steps))]
    assert {type(event) for event in found} == {Started, PromptProgress, TextDelta, CallMade, Finished}
    assert {event.reason for event in found if isinstance(event, Finished)} == set(FinishReason)
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    assert {type(error) for error in error_samples()} == kinds


def test_streams_are_read_strictly() -> None:
    assert json_lines(b'{"a":1}\n[]\n') == [{"a": 1}, []]
    assert json_lines(b"") == []
    assert sse_data(b": keep-alive\n\ndata: a\n\n") == ["a"]
    for wrong in (b"{}", b"{}\n\n", b": keep-alive\n\n{}\n", b"{}\n{"):
        with pytest.raises((AssertionError, ValueError)):
            json_lines(wrong)
    with pytest.raises(AssertionError):
        sse_data(b"event: a\ndata: b\n\n")
