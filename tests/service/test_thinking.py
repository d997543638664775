"""Thinking budgets on the request path: who has one, what it says, and where it does not fit."""

import attrs
import pytest
import trio

from ninfer.conversation import (
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    InvalidRequest,
    Text,
    TextDelta,
    ThinkingFields,
    Turn,
)
from ninfer.prompt import THINK_CLOSE as CLOSE
from ninfer.service import ThinkingRules
from ninfer.service.thinking import DEFAULT_GUIDANCE, closing_text
from tests.fakes.device import FakeDevice
from tests.fakes.service import THINK_CLOSE, ByteBuilder, open_service, saying
from tests.prompt.tiny import tokenizer

RULES = ThinkingRules(
    close_token=THINK_CLOSE,
    forced_tokens=(*b" Enough.\n", THINK_CLOSE, *b"\n\n"),
    confirming_tokens=frozenset(b"\r\n"),
)
"""Twelve forced tokens, of one byte each."""


@pytest.mark.contract("THINK-009")
@pytest.mark.parametrize(
    ("message", "text"),
    [
        pytest.param(None, f"{DEFAULT_GUIDANCE}\n{CLOSE}\n\n", id="ours"),
        pytest.param("Stop.", f"Stop.\n{CLOSE}\n\n", id="the marker is appended"),
        pytest.param("", f"\n{CLOSE}\n\n", id="nothing but the marker"),
        pytest.param(f"Stop.{CLOSE}", f"Stop.{CLOSE}\n\n", id="it has one"),
        pytest.param(f"Stop.{CLOSE}\n", f"Stop.{CLOSE}\n", id="and a line break"),
        pytest.param(f"Stop.{CLOSE}\n\nWell,", f"Stop.{CLOSE}\n\nWell,", id="and the answer's first word"),
        pytest.param(f"A {CLOSE} b", f"A {CLOSE} b\n{CLOSE}\n\n", id="a quoted marker is none"),
    ],
)
def test_the_text(message: str | None, text: str) -> None:
    assert closing_text(message) == text


def test_only_the_marker_is_a_control_token() -> None:
    words = tokenizer()
    rules = ThinkingRules.of(words, message="<|im_end|>")
    assert rules is not None
    close = words.control_tokens[CLOSE]
    assert [token for token in rules.forced_tokens if token in words.control_tokens.values()] == [close]
    assert words.decode(rules.forced_tokens) == f"<|im_end|>\n{CLOSE}\n\n"
    assert {words.token_bytes(token)[:1] for token in rules.confirming_tokens} == {b"\n", b"\r"}
    assert len(rules.confirming_tokens) == 3  # both, and two of them in one


def test_a_vocabulary_without_a_marker_has_no_rules() -> None:
    assert ThinkingRules.of(tokenizer(("<|im_end|>",))) is None


def request(*, limit: int = 100, budget: int | None = None, stop: tuple[str, ...] = ()) -> GenerationRequest:
    return GenerationRequest(
        turns=(Turn(role="user", parts=(Text("Hello"),)),),
        max_output_tokens=limit,
        thinking=ThinkingFields(budget_tokens=budget),
        stop=stop,
    )


async def answer(
    asked: GenerationRequest, *, default: int | None = None, says: str = "abcdefghijklm", thinks: bool = True
) -> tuple[str, str, Finished]:
    """Reasoning, answer and end of a reply that says letters behind a prompt of five tokens."""
    events: list[Event] = []
    async with open_service(
        FakeDevice(choose=saying(says, after=5)),
        builder=ByteBuilder(opens_in_reasoning=thinks, thinking=thinks),
        thinking=attrs.evolve(RULES, default_tokens=default),
    ) as house:
        with trio.fail_after(10):
            async with house.service.generate(asked) as source:
                events = [event async for event in source]
    deltas = [event for event in events if isinstance(event, TextDelta)]
    end = events[-1]
    assert isinstance(end, Finished)
    texts = ["".join(delta.text for delta in deltas if delta.channel == channel) for channel in ("reasoning", "answer")]
    return texts[0], texts[1], end


@pytest.mark.contract("THINK-006", "THINK-007", "THINK-010")
async def test_the_text_is_reasoning_and_the_answer_follows() -> None:
    """The device chooses by position: it never learns that tokens were forced, and its answer is what it says next."""
    reasoning, said, end = await answer(request(budget=3), says="abcdefghijklmnopqrst")
    assert (reasoning, said) == ("abc Enough.", "pqrst")
    assert end.reason is FinishReason.STOP_TOKEN
    assert end.usage.completion_tokens == 3 + 12 + 5 + 1
    assert end.usage.reasoning_tokens == 3 + 10


@pytest.mark.contract("THINK-001", "THINK-003")
@pytest.mark.parametrize(
    ("default", "asked", "thinks", "reasoning"),
    [
        pytest.param(None, None, True, "abcdefghijklm", id="no budget"),
        pytest.param(2, None, True, "ab Enough.", id="the server's"),
        pytest.param(2, 4, True, "abcd Enough.", id="the request's is stronger"),
        pytest.param(None, 4, True, "abcd Enough.", id="the request's alone"),
        pytest.param(2, 4, False, "", id="no thinking, no budget"),
        pytest.param(50, None, True, "abcdefghijklm", id="never reached"),
    ],
)
async def test_who_has_a_budget(default: int | None, asked: int | None, thinks: bool, reasoning: str) -> None:
    found, said, _ = await answer(request(budget=asked), default=default, thinks=thinks)
    assert found == reasoning
    assert thinks or said == "abcdefghijklm"


@pytest.mark.contract("THINK-011", "ERR-015")
@pytest.mark.parametrize("limit", [4, 10, 15])
async def test_a_text_that_does_not_fit_is_refused(limit: int) -> None:
    with pytest.raises(
        InvalidRequest, match="no room for 3 tokens of thinking, the 12 that end it, and one"
    ) as refused:
        await answer(request(limit=limit, budget=3))
    assert refused.value.code == "thinking_budget_capacity_insufficient"


@pytest.mark.contract("THINK-005", "THINK-010", "THINK-011")
@pytest.mark.parametrize(("limit", "reasoning", "said"), [(3, "abc", ""), (16, "abc Enough.", "p")])
async def test_an_output_limit_beside_the_budget(limit: int, reasoning: str, said: str) -> None:
    found = await answer(request(limit=limit, budget=3), says="abcdefghijklmnopqrst")
    assert found[:2] == (reasoning, said)
    assert found[2].reason is FinishReason.OUTPUT_LIMIT
    assert found[2].usage.completion_tokens == limit


@pytest.mark.contract("THINK-005")
async def test_a_stop_string_at_the_limit_ends_the_reply() -> None:
    reasoning, said, end = await answer(request(budget=3, stop=("c",)))
    assert (reasoning, said, end.stop) == ("ab", "", "c")
    assert end.usage.completion_tokens == 3
