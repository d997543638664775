"""The official Python clients over the whole house: tool loops, errors as their own exceptions, streams they leave."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic._exceptions import ContentTooLargeError, GatewayTimeoutError, OverloadedError, ServiceUnavailableError

from tests.clients.house import ScriptedServer, in_thread, scripted_server

contract = pytest.mark.contract

LOOP = 'Weather and time? [[call:get_weather {"city":"Paris","days":2}]] [[then:get_time {"zone":"CET"}]]'
SCHEMAS = {
    "get_weather": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    "get_time": {"type": "object", "properties": {"zone": {"type": "string"}}},
}
CALLS = [("get_weather", {"city": "Paris", "days": 2}), ("get_time", {"zone": "CET"})]
FINAL = "Tool said: get_time is done."
MOST_STEPS = 5

Calls = list[tuple[str, Any]]


def result(name: str) -> str:
    """What a tool answers."""
    return f"{name} is done."


def responses_loop(server: ScriptedServer, stream: bool) -> tuple[Calls, str]:
    """All calls of a loop over `previous_response_id`, and the last answer."""
    tools: Any = [
        {"type": "function", "name": name, "parameters": schema, "strict": False} for name, schema in SCHEMAS.items()
    ]
    given: Any = LOOP
    previous: Any = openai.omit
    calls: Calls = []
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0) as client:
        for _ in range(MOST_STEPS):
            asked: Any = {"model": server.model, "input": given, "tools": tools, "previous_response_id": previous}
            if stream:
                with client.responses.stream(**asked) as events:
                    answer: Any = events.get_final_response()
            else:
                answer = client.responses.create(**asked)
            made = [item for item in answer.output if item.type == "function_call"]
            if not made:
                return calls, answer.output_text
            calls += [(item.name, openai_arguments(item.arguments)) for item in made]
            previous = answer.id
            given = [
                {"type": "function_call_output", "call_id": item.call_id, "output": result(item.name)} for item in made
            ]
    raise AssertionError("the loop has no end")


def messages_loop(server: ScriptedServer, stream: bool) -> tuple[Calls, str]:
    """The same over Messages, with the whole history each time."""
    tools: Any = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
    history: list[Any] = [{"role": "user", "content": LOOP}]
    calls: Calls = []
    with anthropic.Anthropic(base_url=server.base_url, api_key="x", max_retries=0) as client:
        for _ in range(MOST_STEPS):
            asked: Any = {
                "model": server.model,
                "max_tokens": 4000,
                "messages": history,
                "tools": tools,
                "thinking": {"type": "adaptive"},
            }
            if stream:
                with client.messages.stream(**asked) as events:
                    answer = events.get_final_message()
            else:
                answer = client.messages.create(**asked)
            assert answer.content[0].type == "thinking"
            made = [block for block in answer.content if block.type == "tool_use"]
            assert answer.stop_reason == ("tool_use" if made else "end_turn")
            if not made:
                return calls, "".join(block.text for block in answer.content if block.type == "text")
            calls += [(block.name, block.input) for block in made]
            history.append({"role": "assistant", "content": answer.content})
            answers = [{"type": "tool_result", "tool_use_id": one.id, "content": result(one.name)} for one in made]
            history.append({"role": "user", "content": answers})
    raise AssertionError("the loop has no end")


def chat_loop(server: ScriptedServer, stream: bool) -> tuple[Calls, str]:
    """The same over Chat."""
    tools: Any = [
        {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()
    ]
    history: list[Any] = [{"role": "user", "content": LOOP}]
    calls: Calls = []
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0) as client:
        for _ in range(MOST_STEPS):
            asked: Any = {"model": server.model, "messages": history, "tools": tools}
            if stream:
                with client.chat.completions.stream(**asked) as events:
                    choice: Any = events.get_final_completion().choices[0]
            else:
                choice = client.chat.completions.create(**asked).choices[0]
            made = choice.message.tool_calls or []
            if not made:
                return calls, choice.message.content
            calls += [(one.function.name, openai_arguments(one.function.arguments)) for one in made]
            history.append(choice.message.model_dump(exclude_none=True))
            history += [{"role": "tool", "tool_call_id": one.id, "content": result(one.function.name)} for one in made]
    raise AssertionError("the loop has no end")


def openai_arguments(text: str) -> Any:
    """Arguments are JSON in a string."""
    return json.loads(text)


@contract("D37", "TOOL-001")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("loop", [chat_loop, responses_loop, messages_loop])
async def test_a_tool_loop_of_two_steps(
    wide_artifact: Path, loop: Callable[[ScriptedServer, bool], tuple[Calls, str]], stream: bool
) -> None:
    async with scripted_server(wide_artifact) as server:
        calls, final = await in_thread(lambda: loop(server, stream))
    assert calls == CALLS
    assert final.strip() == FINAL


def ask_chat(server: ScriptedServer, text: str) -> None:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0) as client:
        client.chat.completions.create(model=server.model, messages=[{"role": "user", "content": text}])


def ask_responses(server: ScriptedServer, text: str) -> None:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0) as client:
        client.responses.create(model=server.model, input=text)


def ask_messages(server: ScriptedServer, text: str) -> None:
    with anthropic.Anthropic(base_url=server.base_url, api_key="x", max_retries=0) as client:
        client.messages.create(model=server.model, max_tokens=99, messages=[{"role": "user", "content": text}])


OPENAI_ERRORS: list[tuple[str, type[openai.APIStatusError], int]] = [
    ("400", openai.BadRequestError, 400),
    ("401", openai.AuthenticationError, 401),
    ("403", openai.PermissionDeniedError, 403),
    ("404", openai.NotFoundError, 404),
    ("413", openai.APIStatusError, 413),
    ("429", openai.RateLimitError, 429),
    ("500", openai.InternalServerError, 500),
    ("503", openai.InternalServerError, 503),
    ("504", openai.InternalServerError, 503),
    ("oom", openai.InternalServerError, 503),
]
ANTHROPIC_ERRORS: list[tuple[str, type[anthropic.APIStatusError], int]] = [
    ("400", anthropic.BadRequestError, 400),
    ("401", anthropic.AuthenticationError, 401),
    ("403", anthropic.PermissionDeniedError, 403),
    ("404", anthropic.NotFoundError, 404),
    ("413", ContentTooLargeError, 413),
    ("529", OverloadedError, 529),
    ("500", anthropic.InternalServerError, 500),
    ("503", ServiceUnavailableError, 503),
    ("504", GatewayTimeoutError, 504),
    ("oom", ServiceUnavailableError, 503),
]


@contract("ERR-001", "ERR-002", "ERR-031", "ERR-032")
async def test_errors_are_the_clients_own(wide_artifact: Path) -> None:
    async with scripted_server(wide_artifact) as server:

        def raised(ask: Callable[[ScriptedServer, str], None], kind: str) -> Any:
            with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
                ask(server, f"[[err:{kind}]]")
            return caught.value

        for kind, expected, status in [*OPENAI_ERRORS, *ANTHROPIC_ERRORS]:
            asks = (ask_messages,) if issubclass(expected, anthropic.APIStatusError) else (ask_chat, ask_responses)
            for ask in asks:
                error = await in_thread(lambda ask=ask, kind=kind: raised(ask, kind))  # type: ignore[misc]
                assert type(error) is expected, (ask, kind)
                assert error.status_code == status, (ask, kind)
                assert error.request_id, (ask, kind)


def leave_chat(server: ScriptedServer) -> None:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x") as client:
        messages: Any = [{"role": "user", "content": "[[pace:50]] [[pad:2000]]"}]
        with client.chat.completions.create(model=server.model, messages=messages, stream=True) as stream:
            assert len([chunk for chunk, _ in zip(stream, range(3), strict=False)]) == 3


def leave_responses(server: ScriptedServer) -> None:
    with (
        openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x") as client,
        client.responses.create(model=server.model, input="[[pace:50]] [[pad:2000]]", stream=True) as stream,
    ):
        assert len([event for event, _ in zip(stream, range(6), strict=False)]) == 6


def leave_messages(server: ScriptedServer) -> None:
    with anthropic.Anthropic(base_url=server.base_url, api_key="x") as client:
        messages: Any = [{"role": "user", "content": "[[pace:50]] [[pad:2000]]"}]
        with client.messages.stream(model=server.model, max_tokens=9000, messages=messages) as stream:
            assert next(iter(stream.text_stream))


@contract("HTTP-016")
@pytest.mark.parametrize("leave", [leave_chat, leave_responses, leave_messages])
async def test_a_stream_that_is_left_ends_the_work(
    wide_artifact: Path, leave: Callable[[ScriptedServer], None]
) -> None:
    async with scripted_server(wide_artifact) as server:
        await in_thread(lambda: leave(server))
        await server.idle()
