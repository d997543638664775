"""The official client against a running server. It is synchronous, so it runs in a thread."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import anthropic
import attrs
import pytest
import trio

from ninfer.conversation import (
    CallMade,
    EngineUnavailable,
    Event,
    GenerationRequest,
    InternalError,
    InvalidRequest,
    NotFound,
    Overloaded,
    QueueTimeout,
    RequestError,
    RequestTooLarge,
    Started,
    TextDelta,
    ToolCall,
    Unauthenticated,
)
from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.testing import FakeHost, Step, finished, running_server, script, until

contract = pytest.mark.contract
T = TypeVar("T")
MESSAGES: Any = [{"role": "user", "content": "Hi"}]
TOOLS: Any = [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]


async def with_client(host: FakeHost, use: Callable[[anthropic.Anthropic], T], *, prefix: str = "") -> T:
    async with running_server(host, [AnthropicMessages(host)]) as server:

        def run() -> T:
            with anthropic.Anthropic(base_url=server.base_url + prefix, api_key="x", max_retries=0) as client:
                return use(client)

        with trio.fail_after(20):
            return await trio.to_thread.run_sync(run)


def create(client: anthropic.Anthropic, **members: Any) -> Any:
    return client.messages.create(**{"model": "m", "max_tokens": 99, "messages": MESSAGES, **members})


@contract("HTTP-003", "HTTP-004", "ANTH-047")
@pytest.mark.parametrize("prefix", ["", "/v1"], ids=["as documented", "with a prefix too many"])
async def test_a_message(prefix: str) -> None:
    host = FakeHost(script("Hel", "lo", reasoning=["h", "m"]))
    answer = await with_client(host, create, prefix=prefix)
    assert [(block.type, getattr(block, block.type)) for block in answer.content] == [
        ("thinking", "hm"),
        ("text", "Hello"),
    ]
    assert answer.stop_reason == "end_turn"
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens, answer.usage.output_tokens) == (7, 4, 7)
    assert answer._request_id.startswith("req_")


@contract("HTTP-003", "ANTH-048", "ANTH-043")
async def test_a_stream() -> None:
    def ask(client: anthropic.Anthropic) -> tuple[str, Any]:
        with client.messages.stream(model="m", max_tokens=99, messages=MESSAGES) as stream:
            return "".join(stream.text_stream), stream.get_final_message()

    words, answer = await with_client(FakeHost(script("Hel", "lo", reasoning=["h", "m"])), ask)
    assert words == "Hello"
    assert answer.content[0].thinking == "hm"
    assert answer.content[0].signature
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens, answer.usage.output_tokens) == (7, 4, 7)


@contract("ANTH-021", "ANTH-023")
async def test_reasoning_that_was_not_shown_comes_back() -> None:
    host = FakeHost(script("Hello", reasoning=["h", "m"]))

    def ask(client: anthropic.Anthropic) -> Any:
        thinking: Any = {"type": "adaptive", "display": "omitted"}
        with client.messages.stream(model="m", max_tokens=99, messages=MESSAGES, thinking=thinking) as stream:
            first = stream.get_final_message()
        create(client, messages=[*MESSAGES, {"role": "assistant", "content": first.content}, *MESSAGES])
        return first

    first = await with_client(host, ask)
    assert first.content[0].thinking == ""
    assert host.requests[1].turns[1].reasoning == "hm"
    assert host.requests[1].turns[1].text == "Hello"


@attrs.define(eq=False)
class Conversation(FakeHost):
    """Plays the next of its scripts for each request."""

    replies: Sequence[Sequence[Step]] = ()

    def generate(self, request: GenerationRequest) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        self.steps = self.replies[len(self.requests)]
        return super().generate(request)


@contract("ANTH-016", "ANTH-033", "ANTH-048", "TMPL-006")
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tool_round_trip(streamed: bool) -> None:
    made = [
        CallMade(ToolCall(id=f"toolu_{city}", name="weather", arguments={"city": city})) for city in ("Bonn", "Ulm")
    ]
    host = Conversation(
        replies=[[Started(11, 4), TextDelta("Looking.", "answer"), *made, finished()], script("Rain and sun.")]
    )

    def ask(client: anthropic.Anthropic) -> tuple[Any, Any]:
        if streamed:
            with client.messages.stream(model="m", max_tokens=99, messages=MESSAGES, tools=TOOLS) as stream:
                first = stream.get_final_message()
        else:
            first = create(client, tools=TOOLS)
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"{block.input['city']}: rain"}
            for block in first.content
            if block.type == "tool_use"
        ]
        history = [
            *MESSAGES,
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": results[::-1]},
        ]
        return first, create(client, tools=TOOLS, messages=history)

    first, second = await with_client(host, ask)
    assert first.stop_reason == "tool_use"
    assert second.content[0].text == "Rain and sun."
    assert [tool.name for tool in host.requests[0].tools] == ["weather"]
    said, *results = host.requests[1].turns[1:]
    assert said.text == "Looking."
    assert said.calls == tuple(one.call for one in made)
    assert [(turn.role, turn.call_id, turn.text) for turn in results] == [
        ("tool", "toolu_Bonn", "Bonn: rain"),
        ("tool", "toolu_Ulm", "Ulm: rain"),
    ]


@contract("ERR-002", "ERR-031", "ERR-032", "ANTH-047")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidRequest("x"), anthropic.BadRequestError),
        (Unauthenticated("x"), anthropic.AuthenticationError),
        (NotFound("x"), anthropic.NotFoundError),
        (RequestTooLarge("x"), anthropic._exceptions.ContentTooLargeError),
        (Overloaded("x"), anthropic._exceptions.OverloadedError),
        (QueueTimeout("x"), anthropic._exceptions.GatewayTimeoutError),
        (EngineUnavailable("x"), anthropic._exceptions.ServiceUnavailableError),
        (InternalError("x"), anthropic.InternalServerError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, RequestError) else value.__name__,
)
async def test_errors(error: RequestError, expected: type[anthropic.APIStatusError]) -> None:
    def ask(client: anthropic.Anthropic) -> anthropic.APIStatusError:
        with pytest.raises(expected) as caught:
            create(client)
        return caught.value

    raised = await with_client(FakeHost(on_enter=[error]), ask)
    assert type(raised) is expected
    assert raised.request_id is not None
    body: Any = raised.body
    assert body["error"]["details"]["error_code"] == error.code
    assert body["request_id"] == raised.request_id


@contract("ERR-002")
async def test_an_error_inside_a_stream() -> None:
    def ask(client: anthropic.Anthropic) -> str:
        words: list[str] = []
        with client.messages.stream(model="m", max_tokens=99, messages=MESSAGES) as stream:
            with pytest.raises(anthropic.APIStatusError) as caught:
                words.extend(stream.text_stream)
            assert caught.value.type == "api_error"
        return "".join(words)

    host = FakeHost([Started(11, 4), TextDelta("Hel", "answer"), EngineUnavailable("gone")])
    assert await with_client(host, ask) == "Hel"


@contract("HTTP-016")
async def test_a_stream_that_the_client_leaves() -> None:
    host = FakeHost([*script("Hel", "lo")[:-1], trio.Event()])
    async with running_server(host, [AnthropicMessages(host)]) as server:

        def run() -> None:
            client = anthropic.Anthropic(base_url=server.base_url, api_key="x", max_retries=0)
            with client, client.messages.stream(model="m", max_tokens=99, messages=MESSAGES) as stream:
                assert next(iter(stream.text_stream)) == "Hel"

        with trio.fail_after(20):
            await trio.to_thread.run_sync(run)
            await until(lambda: host.left == 1)
    assert host.open_generations == 0


@contract("ATOK-001")
async def test_a_count() -> None:
    host = FakeHost(counted=17)
    counted = await with_client(host, lambda client: client.messages.count_tokens(model="m", messages=MESSAGES))
    assert counted.input_tokens == 17
    assert host.requests[0].turns[0].text == "Hi"
