"""Figures of a generation, from engine events whose times a test has chosen."""

import pytest
import trio

from ninfer.conversation import Event, Finished, TextDelta
from ninfer.engine import types as engine
from ninfer.reply import ReplyReader
from ninfer.service.calls import CallReader
from ninfer.service.generation import Generation
from tests.fakes.service import REPLY_TOKENS, STOP_TOKEN

ADMITTED_S = 100.0
SAMPLING = engine.Sampling(temperature=0)


async def events(*raw: engine.EngineEvent) -> list[Event]:
    generation = Generation(
        prompt=engine.Prompt(tuple(range(10))),
        plan=engine.Plan(sampling=SAMPLING, max_new_tokens=9, stop_tokens=frozenset({STOP_TOKEN})),
        reader=ReplyReader(REPLY_TOKENS),
        calls=CallReader({}),
        clipped=False,
        pending_timeout_s=1,
    )
    send, receive = trio.open_memory_channel[engine.EngineEvent](len(raw) + 1)
    for event in (engine.Admitted(cached_tokens=4, at_s=ADMITTED_S), *raw):
        send.send_nowait(event)
    return [event async for event in generation.events(receive, trio.current_time() + 1)]


def tokens(text: bytes, at_s: float) -> engine.Tokens:
    return engine.Tokens(tokens=tuple(text), at_s=at_s)


END = engine.Finished(reason=engine.StopReason.STOP_TOKEN)


@pytest.mark.contract("OBS-005", "OBS-006")
async def test_times() -> None:
    found = await events(
        engine.PromptProgress(processed_tokens=10, at_s=101.0),
        tokens(b"a", 102.0),
        tokens(b"bc", 103.5),
        tokens(b"d", 104.0),
        END,
    )
    end = found[-1]
    assert isinstance(end, Finished)
    assert (end.timings.prompt_s, end.timings.generation_s) == (2.0, 2.0)
    assert end.usage.completion_tokens == 4
    reached = [
        (one.text, one.committed.completion_tokens, one.committed.timings.generation_s)
        for one in found
        if isinstance(one, TextDelta) and one.committed is not None
    ]
    assert reached == [("a", 1, 0.0), ("bc", 3, 1.5), ("d", 4, 2.0)]


@pytest.mark.contract("OBS-005", "OBS-009")
async def test_times_without_output() -> None:
    end = (await events(engine.PromptProgress(processed_tokens=10, at_s=101.0), END))[-1]
    assert isinstance(end, Finished)
    assert (end.timings.prompt_s, end.timings.generation_s) == (1.0, 0.0)


@pytest.mark.contract("OBS-012")
async def test_half_a_character_is_a_commit_too() -> None:
    found = await events(tokens("ö".encode()[:1], 101.0), tokens("ö".encode()[1:], 102.0), END)
    (text,) = [one for one in found if isinstance(one, TextDelta)]
    assert text.committed is not None
    assert (text.text, text.committed.completion_tokens) == ("ö", 2)
    assert text.committed.timings.generation_s == 1.0
