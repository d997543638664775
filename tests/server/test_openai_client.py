"""The official client against a running server, streamed and not. It is synchronous, so it runs in a thread."""

from collections.abc import Callable
from typing import TypeVar

import openai
import pytest
import trio

from ninfer.conversation import InternalError, Overloaded
from ninfer.testing import CARD, FakeHost, running_server, script

T = TypeVar("T")

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


async def with_client(host: FakeHost, use: Callable[[openai.OpenAI], T]) -> T:
    async with running_server(host) as server:

        def run() -> T:
            with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0) as client:
                return use(client)

        with trio.fail_after(20):
            return await trio.to_thread.run_sync(run)


@pytest.mark.contract("CHAT-001", "HTTP-003", "CHAT-018")
async def test_an_aggregate() -> None:
    def ask(client: openai.OpenAI):
        return client.chat.completions.create(model=CARD.id, messages=MESSAGES, max_tokens=9)

    answer = await with_client(FakeHost(steps=script("Hel", "lo", reasoning=["hm"])), ask)
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].message.reasoning_content == "hm"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    assert answer.usage.completion_tokens_details.reasoning_tokens == 3
    assert answer._request_id.startswith("req_")


@pytest.mark.contract("CHAT-018", "CHAT-038", "CHAT-039")
async def test_a_stream() -> None:
    def ask(client: openai.OpenAI):
        return list(
            client.chat.completions.create(
                model=CARD.id, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
            )
        )

    chunks = await with_client(FakeHost(steps=script("Hel", "lo")), ask)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.total_tokens == 18


async def test_the_stream_helper() -> None:
    def ask(client: openai.OpenAI):
        with client.chat.completions.stream(model=CARD.id, messages=MESSAGES) as stream:
            return stream.get_final_completion()

    completion = await with_client(FakeHost(steps=script("Hel", "lo")), ask)
    assert completion.choices[0].message.content == "Hello"


@pytest.mark.contract("CHAT-042")
async def test_a_stream_that_fails_raises() -> None:
    def ask(client: openai.OpenAI):
        with pytest.raises(openai.APIError) as caught:
            list(client.chat.completions.create(model=CARD.id, messages=MESSAGES, stream=True))
        return caught.value

    error = await with_client(FakeHost(steps=[*script("Hel")[:-1], InternalError("broken")]), ask)
    assert (error.code, error.type, error.message) == ("internal_error", "server_error", "broken")


@pytest.mark.contract("ERR-001", "CHAT-002")
@pytest.mark.parametrize(
    ("options", "steps", "kind", "code", "param"),
    [
        ({"model": "other"}, None, openai.NotFoundError, "model_not_found", "model"),
        ({"temperature": 9}, None, openai.BadRequestError, "invalid_value", "temperature"),
        ({}, [Overloaded("full")], openai.RateLimitError, "server_overloaded", None),
    ],
)
async def test_errors(options, steps, kind, code, param) -> None:
    def ask(client: openai.OpenAI):
        with pytest.raises(kind) as caught:
            client.chat.completions.create(**{"model": CARD.id, "messages": MESSAGES, **options})
        return caught.value

    error = await with_client(FakeHost(on_enter=steps or []), ask)
    assert (error.code, error.param) == (code, param)
    assert error.request_id.startswith("req_")


@pytest.mark.contract("MODELS-010", "MODELS-011")
async def test_models() -> None:
    def ask(client: openai.OpenAI):
        return [model.id for model in client.models.list()], client.models.retrieve(CARD.id).id

    assert await with_client(FakeHost(), ask) == ([CARD.id], CARD.id)
