"""The golden model behind a real process: its greedy tokens over HTTP, streamed and not, by the official client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.cli.test_serve import Process, served
from tests.fixtures import GoldenPrompt


@pytest.fixture(scope="module")
def process(golden_artifact: Path, golden_cache: Path) -> Iterator[Process]:
    """A server with the golden model in float32; its chat prompt is the text of the last user message."""
    with served(golden_artifact, golden_cache, "--max-context", "512", "--prefill-chunk", "64") as running:
        yield running


@pytest.fixture
def client(process: Process) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{process.base_url}/v1", api_key="x", max_retries=0, timeout=60) as made:
        yield made


def asked(prompt: GoldenPrompt, **options: Any) -> dict[str, Any]:
    return {
        "model": "golden",
        "messages": [{"role": "user", "content": prompt.text}],
        "max_completion_tokens": len(prompt.greedy),
        "temperature": 0,
        "presence_penalty": 0,
        **options,
    }


@pytest.mark.contract("CHAT-001", "D18")
@pytest.mark.parametrize("number", [0, 1])
def test_greedy_tokens(client: openai.OpenAI, golden_prompts: tuple[GoldenPrompt, ...], number: int) -> None:
    prompt = golden_prompts[number]
    answer = client.chat.completions.create(**asked(prompt))
    assert answer.choices[0].message.content == prompt.greedy_text
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens == len(prompt.tokens)
    assert answer.usage.completion_tokens == len(prompt.greedy)


@pytest.mark.contract("CHAT-018")
@pytest.mark.parametrize("number", [0, 1])
def test_greedy_tokens_streamed(client: openai.OpenAI, golden_prompts: tuple[GoldenPrompt, ...], number: int) -> None:
    prompt = golden_prompts[number]
    chunks = list(client.chat.completions.create(**asked(prompt, stream=True, stream_options={"include_usage": True})))
    deltas = [chunk.choices[0].delta.content for chunk in chunks[1:-2]]
    assert "".join(deltas) == prompt.greedy_text
    assert chunks[-1].usage.completion_tokens == len(prompt.greedy)


@pytest.mark.contract("CHAT-010")
def test_a_limit_of_zero(client: openai.OpenAI, golden_prompts: tuple[GoldenPrompt, ...]) -> None:
    answer = client.chat.completions.create(**asked(golden_prompts[0], max_completion_tokens=0))
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("", "length")
    assert answer.usage.completion_tokens == 0


@pytest.mark.contract("CHAT-014", "CHAT-043")
def test_a_stop_string(client: openai.OpenAI, golden_prompts: tuple[GoldenPrompt, ...]) -> None:
    prompt = golden_prompts[0]
    stop = prompt.greedy_text[3:5]
    answer = client.chat.completions.create(**asked(prompt, stop=[stop, "\x00never"]))
    assert answer.choices[0].message.content == prompt.greedy_text[: prompt.greedy_text.index(stop)]
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.contract("CHAT-012", "SAMP-007")
def test_seeds_repeat(client: openai.OpenAI, golden_prompts: tuple[GoldenPrompt, ...]) -> None:
    def sampled(**options: Any) -> str:
        body = asked(golden_prompts[0], temperature=2.0, top_p=1.0, max_completion_tokens=24, **options)
        return client.chat.completions.create(**body).choices[0].message.content or ""

    assert sampled(seed=-5) == sampled(seed=-5)
    assert len({sampled(seed=seed) for seed in range(4)} | {sampled(), sampled()}) > 1
