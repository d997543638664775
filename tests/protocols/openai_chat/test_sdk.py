"""The official Python client, unmodified, over loopback: tool loops through the real prompt, engine and parser."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import openai
import pytest
import trio

from ninfer.conversation import EngineUnavailable, GenerationRequest, Overloaded, Text
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_chat.encode import ChunkEncoder
from ninfer.service import ProtocolFlags
from ninfer.testing import CARD, FakeHost, Step, running_server, script, until
from tests.fuzz.house import MODEL, open_house

contract = pytest.mark.contract
Result = TypeVar("Result")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"days": {"type": "integer"}, "city": {"type": "string"}, "zip": {"type": "string"}},
        },
    },
}
TIME = {"type": "function", "function": {"name": "get_time"}}
PATCH = {"type": "custom", "custom": {"name": "patch", "description": "Edits files."}}


class Use:
    """The client in a thread, as a synchronous program would use it."""

    def __init__(self, sdk: openai.OpenAI) -> None:
        self._sdk = sdk

    async def __call__(self, use: Callable[[openai.OpenAI], Result]) -> Result:
        with trio.fail_after(60):
            return await trio.to_thread.run_sync(use, self._sdk)


@asynccontextmanager
async def house() -> AsyncIterator[Use]:
    """A whole house without a model behind a real server."""
    async with open_house() as inside, running_server(inside.service) as server:
        with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0, timeout=50) as sdk:
            yield Use(sdk)


@asynccontextmanager
async def fake(*steps: Step, **members: Any) -> AsyncIterator[tuple[Use, FakeHost]]:
    host = FakeHost(steps=list(steps), **members)
    async with running_server(host) as server:
        with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0) as sdk:
            yield Use(sdk), host


def loop(sdk: openai.OpenAI, prompt: str, tools: list[Any], *, stream: bool) -> tuple[list[Any], str]:
    """Ask, answer every call with its own arguments, until the model makes none: all calls, and the last answer."""
    messages: list[Any] = [{"role": "user", "content": prompt}]
    calls: list[Any] = []
    for _ in range(5):
        asked: Any = {"model": MODEL, "messages": messages, "tools": tools, "max_tokens": 400}
        if stream:
            with sdk.chat.completions.stream(**asked) as events:
                choice = events.get_final_completion().choices[0]
        else:
            choice = sdk.chat.completions.create(**asked).choices[0]
        made = choice.message.tool_calls or []
        assert choice.finish_reason == ("tool_calls" if made else "stop")
        if not made:
            return calls, choice.message.content or ""
        calls += made
        messages.append(choice.message.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": f"result of {call.function.name}"} for call in made
        ]
    raise AssertionError("the loop does not end")


@contract("CHAT-024", "CHAT-044", "TOOL-027", "HTTP-003")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_of_two_steps(stream: bool) -> None:
    prompt = '[[call:get_weather {"zip": "01067", "days": 3, "city": "Dresden"}]] [[then:get_time]]'
    async with house() as use:
        calls, answer = await use(lambda sdk: loop(sdk, prompt, [WEATHER, TIME], stream=stream))
    assert [call.function.name for call in calls] == ["get_weather", "get_time"]
    # Typed by the schema, in the model's order (TMPL-006): a number stays a number, digits of a string stay a string.
    assert calls[0].function.arguments == '{"zip":"01067","days":3,"city":"Dresden"}'
    assert json.loads(calls[1].function.arguments) == {}
    assert answer == "Tool said: result of get_time"


@contract("CHAT-024", "TOOL-027")
@pytest.mark.parametrize("stream", [False, True])
async def test_parallel_calls(stream: bool) -> None:
    prompt = '[[call:get_weather {"city": "Rome"}]] [[call:get_weather {"city": "Oslo"}]] [[call:get_time]]'
    async with house() as use:
        calls, answer = await use(lambda sdk: loop(sdk, prompt, [WEATHER, TIME], stream=stream))
    assert [call.function.name for call in calls] == ["get_weather", "get_weather", "get_time"]
    assert len({call.id for call in calls}) == 3
    assert answer == "Tool said: result of get_time"


@contract("CHAT-021", "CHAT-022")
async def test_a_free_form_tool() -> None:
    def ask(sdk: openai.OpenAI) -> Any:
        text = '[[call:patch {"input": "*** Begin\\n+ x = 1"}]]'
        user = {"role": "user", "content": text}
        first = sdk.chat.completions.create(model=MODEL, messages=[user], tools=[PATCH], max_tokens=400)  # type: ignore[list-item,arg-type]
        message = first.choices[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "done"}  # type: ignore[index]
        history: Any = [user, message.model_dump(exclude_none=True), result]
        second = sdk.chat.completions.create(model=MODEL, messages=history, tools=[PATCH])  # type: ignore[list-item]
        return message.tool_calls, second.choices[0].message.content

    async with house() as use:
        calls, answer = await use(ask)
    (call,) = calls
    assert (call.type, call.custom.name, call.custom.input) == ("custom", "patch", "*** Begin\n+ x = 1")
    assert answer == "Tool said: done"


@pytest.mark.parametrize("members", [{"tool_choice": "none", "tools": [TIME]}, {}], ids=["none", "no tools"])
async def test_markup_is_text_where_no_call_is_wanted(members: Any) -> None:
    def ask(sdk: openai.OpenAI) -> Any:
        user: Any = {"role": "user", "content": "[[call:get_time]]"}
        return sdk.chat.completions.create(model=MODEL, messages=[user], **members).choices[0]

    async with house() as use:
        choice = await use(ask)
    assert choice.message.tool_calls is None
    assert choice.message.content == "<tool_call>\n<function=get_time>\n</function>\n</tool_call>"
    assert choice.finish_reason == "stop"


@contract("CHAT-037", "OBS-001", "OBS-004")
async def test_reasoning_and_figures() -> None:
    def ask(sdk: openai.OpenAI) -> Any:
        user: Any = {"role": "user", "content": "[[think]] [[say:done]]"}
        return sdk.chat.completions.create(model=MODEL, messages=[user], tools=[TIME])  # type: ignore[list-item]

    async with house() as use:
        answer = await use(ask)
    assert answer.choices[0].message.reasoning_content == "Let me think about that."
    assert answer.choices[0].message.content == "done"
    timings = answer.model_extra["timings"]
    assert timings["cache_n"] + timings["prompt_n"] == answer.usage.prompt_tokens
    assert timings["predicted_n"] == answer.usage.completion_tokens
    assert timings["prompt_ms"] > 0


@contract("OBS-002", "OBS-011", "OBS-013", "OBS-014", "OBS-015")
async def test_observations_of_a_stream() -> None:
    def ask(sdk: openai.OpenAI) -> Any:
        user: Any = {"role": "user", "content": f"{'long ' * 300}[[say:done]]"}
        extra = {"timings_per_token": True, "return_progress": True}
        return list(sdk.chat.completions.create(model=MODEL, messages=[user], stream=True, extra_body=extra))

    async with house() as use:
        chunks = [chunk.model_dump() for chunk in await use(ask)]
    progress = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    processed = [report["processed"] for report in progress]
    assert processed[0] == progress[0]["cache"] == 0
    assert processed == sorted(set(processed))
    assert len(processed) >= 3
    assert processed[-1] == progress[-1]["total"]
    texts = [at for at, chunk in enumerate(chunks) if chunk["choices"][0]["delta"].get("content")]
    assert texts[0] > max(at for at, chunk in enumerate(chunks) if "prompt_progress" in chunk)
    counts = [chunks[at]["timings"]["predicted_n"] for at in texts]
    assert counts == sorted(counts)
    assert "timings" in chunks[-1]


@contract("ERR-031", "ERR-008")
@pytest.mark.parametrize(
    ("error", "raised"),
    [(Overloaded("full"), openai.RateLimitError), (EngineUnavailable("gone"), openai.InternalServerError)],
)
async def test_errors_are_the_client_s_own_classes(error: Exception, raised: type[openai.APIStatusError]) -> None:
    def ask(sdk: openai.OpenAI) -> openai.APIStatusError:
        with pytest.raises(raised) as caught:
            sdk.chat.completions.create(model=CARD.id, messages=[{"role": "user", "content": "Hi"}])
        return caught.value

    async with fake(on_enter=[error]) as (use, _):
        found = await use(ask)
    assert found.request_id is not None


@contract("HTTP-016")
async def test_a_stream_that_the_client_closes_is_cancelled() -> None:
    def ask(sdk: openai.OpenAI) -> None:
        user: Any = {"role": "user", "content": "Hi"}
        with sdk.chat.completions.create(model=CARD.id, messages=[user], stream=True) as stream:
            next(iter(stream))

    async with fake(*script("Hel")[:-1], 3600.0) as (use, host):
        await use(ask)
        await until(lambda: host.open_generations == 0)


class Stammering(ChunkEncoder):
    """Says the role twice."""

    def frames(self, event: Any) -> list[bytes]:
        return super().frames(event) * 2


class Stammer(OpenAIChat):
    """Chat with a fault in its encoder."""

    new_encoder = Stammering


@pytest.mark.parametrize("check", [False, True])
async def test_a_server_that_watches_itself_fails_a_stream_out_of_order(check: bool) -> None:
    def ask(sdk: openai.OpenAI) -> str | None:
        user: Any = {"role": "user", "content": "Hi"}
        try:
            list(sdk.chat.completions.create(model=CARD.id, messages=[user], stream=True))
        except openai.APIError as error:
            return error.code
        return None

    host = FakeHost(flags=ProtocolFlags(check_events=check))
    async with running_server(host, (Stammer(host),)) as server:
        with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0) as sdk:
            assert await Use(sdk)(ask) == ("internal_error" if check else None)


async def test_a_server_that_watches_itself_lets_good_streams_pass() -> None:
    def ask(sdk: openai.OpenAI) -> list[Any]:
        user: Any = {"role": "user", "content": "Hi"}
        return list(sdk.chat.completions.create(model=CARD.id, messages=[user], stream=True))

    async with fake(*script("Hel", "lo"), flags=ProtocolFlags(check_events=True)) as (use, host):
        assert len(await use(ask)) == 4
    assert isinstance(host.requests[0], GenerationRequest)
    assert Text("Hi") in host.requests[0].turns[0].parts
