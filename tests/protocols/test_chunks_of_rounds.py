"""What leaves for one engine round: one chunk per lane, however many tokens the round has committed."""

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import Event, TextDelta
from ninfer.engine import types as engine
from ninfer.protocols.anthropic_messages.encode import Head as MessageHead
from ninfer.protocols.anthropic_messages.encode import MessageEncoder
from ninfer.protocols.openai_chat.encode import ChunkEncoder, Shape
from ninfer.protocols.openai_chat.encode import Head as ChatHead
from ninfer.protocols.openai_responses.encode import Answer, frame
from ninfer.protocols.openai_responses.encode import Head as ResponsesHead
from tests.service.test_generation import END, events, tokens


def chat() -> Callable[[Event], list[bytes]]:
    return ChunkEncoder(ChatHead(id="c", created=1, model="m"), Shape()).frames


def messages() -> Callable[[Event], list[bytes]]:
    return MessageEncoder(MessageHead(id="m", model="m"), show_thinking=True).frames


def responses() -> Callable[[Event], list[bytes]]:
    head = ResponsesHead(id="r", created_at=1, model="m", echoed={})
    answer = Answer(head, summary=False, mirror=False, origin=lambda name: (None, name))
    return lambda event: list(map(frame, answer.feed(event)))


def texts_of(frames: Sequence[bytes]) -> list[str]:
    """The text of every frame that carries any."""
    found = []
    for one in frames:
        data = json.loads(one.partition(b"data: ")[2])
        delta = data["choices"][0]["delta"].get("content") if "choices" in data else data.get("delta")
        text = delta.get("text") if isinstance(delta, dict) else delta
        if text:
            found.append(text)
    return found


async def test_one_delta_a_round() -> None:
    said = await events(tokens(b"a", 101.0), tokens(b"bcde", 102.0), tokens(b"fg", 103.0), END)
    assert [event.text for event in said if isinstance(event, TextDelta)] == ["a", "bcde", "fg"]


@pytest.mark.parametrize("encoder", [chat, responses, messages])
@given(
    rounds=st.lists(st.binary(min_size=1, max_size=6).map(lambda data: bytes(97 + b % 26 for b in data)), max_size=9)
)
async def test_one_chunk_a_round(encoder: Callable[[], Callable[[Event], list[bytes]]], rounds: list[bytes]) -> None:
    committed: list[engine.EngineEvent] = [tokens(text, 101.0 + at) for at, text in enumerate(rounds)]
    encode = encoder()
    said = [event for event in await events(*committed, END) if isinstance(event, TextDelta)]
    frames = [one for event in said for one in encode(event)]
    assert texts_of(frames) == [text.decode() for text in rounds]
