"""Calls in replies: through the reader alone by tables, and through the request path over the real engine."""

import logging
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import (
    CallMade,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Text,
    TextDelta,
    Tool,
    Turn,
)
from ninfer.reply import Fallback
from ninfer.service import ServiceSettings
from ninfer.service.calls import CallReader
from tests.fakes.device import FakeDevice
from tests.fakes.service import THINK_CLOSE, ByteBuilder, open_service, saying

contract = pytest.mark.contract

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOL = Tool(name="weather", declaration={"type": "function", "function": {"name": "weather"}}, parameters=SCHEMA)
CALL = (
    "<tool_call>\n<function=weather>\n<parameter=days>\n3\n</parameter>\n<parameter=city>\nRome\n</parameter>\n"
    "</function>\n</tool_call>"
)
CUT = "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n"
STOP, LIMIT = FinishReason.STOP_TOKEN, FinishReason.OUTPUT_LIMIT


@attrs.frozen(kw_only=True)
class Read:
    """What a reply came to."""

    answer: str
    reasoning: str
    calls: list[tuple[str, Any]]
    fallback: Fallback


def read(*deltas: TextDelta, tolerant: bool = False, reason: FinishReason = STOP, reasoning_open: bool = False) -> Read:
    reader = CallReader({"weather": SCHEMA}, tolerant=tolerant)
    said = [*(one for delta in deltas for one in reader.feed([delta]))]
    rest = reader.finish(reason, reasoning_open=reasoning_open)
    texts = [*said, *(one for one in rest if isinstance(one, TextDelta))]
    assert all(delta.text for delta in texts)
    calls = [one.call for one in rest if isinstance(one, CallMade)]
    assert rest[len(rest) - len(calls) :] == list(map(CallMade, calls)), "calls come last"
    assert len({call.id for call in calls}) == len(calls)
    return Read(
        answer="".join(delta.text for delta in texts if delta.channel == "answer"),
        reasoning="".join(delta.text for delta in texts if delta.channel == "reasoning"),
        calls=[(call.name, dict(call.arguments)) for call in calls],
        fallback=reader.diagnostics.fallback,
    )


def answer(text: str) -> TextDelta:
    return TextDelta(text, "answer")


def thought(text: str) -> TextDelta:
    return TextDelta(text, "reasoning")


ROME = ("weather", {"days": 3, "city": "Rome"})


@pytest.mark.parametrize(
    ("deltas", "how", "shown", "calls"),
    [
        pytest.param([answer(f"Sure.\n\n{CALL}")], {}, "Sure.", [ROME], marks=contract("TOOL-027"), id="text, call"),
        pytest.param([answer(f"{CALL}\n{CALL}")], {}, "", [ROME, ROME], id="two"),
        pytest.param([answer(CUT)], {"reason": LIMIT}, CUT, [], marks=contract("TOOL-013"), id="cut, strict"),
        pytest.param(
            [answer(CUT)],
            {"reason": LIMIT, "tolerant": True},
            "",
            [("weather", {"city": "Rome"})],
            marks=contract("TOOL-018"),
            id="cut by the limit, tolerant",
        ),
        pytest.param([answer(CUT)], {"tolerant": True}, CUT, [], id="cut by the model, tolerant"),
        pytest.param([answer(f"{CALL} Done.")], {}, f"{CALL} Done.", [], marks=contract("TOOL-015"), id="suffix"),
        pytest.param(
            [answer(f"{CALL} Done.")], {"tolerant": True}, "", [ROME], marks=contract("TOOL-017"), id="suffix, tolerant"
        ),
        pytest.param([thought(CALL), answer("Hi")], {"tolerant": True}, "Hi", [], marks=contract("TOOL-025")),
        pytest.param(
            [thought(f"hm\n{CALL}")],
            {"tolerant": True, "reasoning_open": True},
            "",
            [ROME],
            marks=contract("TOOL-022"),
            id="stranded in thinking",
        ),
        pytest.param([thought(CALL)], {"reasoning_open": True}, "", [], marks=contract("TOOL-022"), id="strict"),
        *(
            pytest.param([thought(text)], {"tolerant": True, **how}, "", [], marks=contract("TOOL-025"))
            for text, how in (
                (CALL, {"reasoning_open": False}),
                (CALL, {"reasoning_open": True, "reason": LIMIT}),
                (CALL, {"reasoning_open": True, "reason": FinishReason.CONTEXT_LIMIT}),
                (CALL, {"reasoning_open": True, "reason": FinishReason.STOP_STRING}),
                (f"{CALL} then", {"reasoning_open": True}),
                (CALL + CUT, {"reasoning_open": True}),
            )
        ),
    ],
)
def test_replies(deltas: Sequence[TextDelta], how: Any, shown: str, calls: list[Any]) -> None:
    found = read(*deltas, **how)
    assert (found.answer, found.calls) == (shown, calls)
    assert found.reasoning == "".join(delta.text for delta in deltas if delta.channel == "reasoning")


@contract("TOOL-007")
def test_a_call_that_lacks_a_required_argument_is_made() -> None:
    reader = CallReader({"weather": {**SCHEMA, "required": ["city", "days", "unit"]}})
    assert reader.feed([answer(CALL)]) == []
    (made,) = reader.finish(STOP, reasoning_open=False)
    assert isinstance(made, CallMade)
    assert (made.call.name, made.call.arguments) == ROME


def test_ordinary_text_passes_at_once() -> None:
    reader = CallReader({"weather": SCHEMA})
    assert reader.feed([answer("1 < 2")]) == [answer("1 < 2")]
    assert reader.feed([answer(" and <tool"), answer("ing")]) == [answer(" and"), answer(" <tooling")]
    assert reader.feed([answer(CALL[:40])]) == []


@contract("TOOL-020")
def test_a_recovered_call_is_logged_without_what_it_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ninfer")
    found = read(answer(f"{CALL} Done."), tolerant=True)
    assert found.fallback is Fallback.TRUNCATED_TAIL
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "recovered from damaged markup: 1 (truncated_tail, 6 characters behind them dropped)" in record.getMessage()
    assert "Rome" not in record.getMessage()


@contract("TOOL-024")
def test_calls_recovered_from_thinking_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ninfer")
    found = read(thought(f"I should look.\n{CALL}"), tolerant=True, reasoning_open=True)
    assert (found.answer, found.calls) == ("", [ROME])
    assert found.reasoning.startswith("I should look.")
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert "recovered from thinking" in caplog.text


@given(st.text(alphabet="ab<>/=\n", max_size=20), st.sampled_from([CALL, CUT, "<tool_call>", ""]), st.data())
def test_pieces_make_no_difference(before: str, markup: str, data: st.DataObject) -> None:
    whole = before + markup
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    found = read(*(answer(piece) for piece in pieces if piece), reason=LIMIT)
    assert found == read(*([answer(whole)] if whole else []), reason=LIMIT)
    assert found.calls or found.answer == whole


def request(*, calls_allowed: bool = True, tools: tuple[Tool, ...] = (TOOL,), **members: Any) -> GenerationRequest:
    return GenerationRequest(
        turns=(Turn(role="user", parts=(Text("Hi"),)),), tools=tools, calls_allowed=calls_allowed, **members
    )


async def reply(
    text: str | Sequence[int], asked: GenerationRequest, *, thinks: bool = False, **how: Any
) -> list[Event]:
    device = FakeDevice(choose=saying(text, after=2))
    builder = ByteBuilder(opens_in_reasoning=thinks)
    async with open_service(device, settings=ServiceSettings(**how), builder=builder) as house:
        with trio.fail_after(10):
            async with house.service.generate(asked) as events:
                return [event async for event in events]


def end(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


@contract("TOOL-027")
async def test_a_call_through_the_request_path() -> None:
    events = await reply(f"Sure.{CALL}", request())
    assert events[2] == answer("S")
    made = events[-2]
    assert isinstance(made, CallMade)
    assert (made.call.name, list(made.call.arguments.items())) == ("weather", [("days", 3), ("city", "Rome")])
    # Calls cost what they cost: all tokens and the stop token count, shown as text or not.
    assert end(events).usage.completion_tokens == len(f"Sure.{CALL}") + 1
    assert end(events).reason is STOP


@pytest.mark.parametrize("asked", [request(calls_allowed=False), request(tools=())])
async def test_nothing_is_taken_for_a_call_where_none_is_wanted(asked: GenerationRequest) -> None:
    events = await reply(CALL, asked)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == CALL
    assert not any(isinstance(event, CallMade) for event in events)


async def test_a_stop_string_inside_a_call_ends_the_reply_as_text() -> None:
    events = await reply(CALL, request(stop=("Rome",)))
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown == CALL[: CALL.index("Rome")]
    assert end(events).reason is FinishReason.STOP_STRING


@contract("TOOL-022", "TOOL-025")
@pytest.mark.parametrize(
    ("tokens", "calls"), [(CALL.encode(), 1), (CALL.encode() + b"\n", 1), ([*CALL.encode(), THINK_CLOSE], 0)]
)
async def test_a_call_stranded_in_thinking(tokens: Sequence[int], calls: int) -> None:
    asked = request()
    events = await reply(tuple(tokens), asked, thinks=True, tolerant_tool_calls=True)
    assert sum(isinstance(event, CallMade) for event in events) == calls
    assert not any(event.channel == "answer" for event in events if isinstance(event, TextDelta))
    assert not any(isinstance(event, CallMade) for event in await reply(tuple(tokens), asked, thinks=True))


@contract("OBS-012")
async def test_text_tells_of_commits_that_were_held_back() -> None:
    events = await reply(f"a{CUT}", request())
    texts = [event for event in events if isinstance(event, TextDelta)]
    counts = [event.committed.completion_tokens for event in texts if event.committed is not None]
    assert len(counts) == len(texts)
    assert counts[0] == 1
    assert counts == sorted(counts)
    assert counts[-1] == end(events).usage.completion_tokens
    assert texts[-1].committed is not None
    assert texts[-1].committed.timings == end(events).timings
