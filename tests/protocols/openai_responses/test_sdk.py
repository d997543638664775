"""The official Python client, unmodified, against a server on loopback (RESP-031)."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
import openai
import pytest
import trio

from ninfer.conversation import CallMade, EngineUnavailable, FinishReason, Overloaded, QueueTimeout, ToolCall
from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.testing import CARD, FakeHost, Step, finished, running_server, script, until

contract = pytest.mark.contract
Result = TypeVar("Result")

CALL = CallMade(ToolCall(id="call_1", name="get_weather", arguments={"city": "Paris"}))
CALLS: list[Step] = [*script(reasoning=["hm"])[:-1], CALL, finished()]
TOOLS: Any = [
    {"type": "function", "name": "get_weather", "strict": False, "parameters": {"type": "object", "properties": {}}}
]


@attrs.frozen
class Client:
    """The client in a thread, as a synchronous program would use it."""

    sdk: openai.OpenAI
    host: FakeHost

    async def __call__(self, use: Callable[[openai.OpenAI], Result]) -> Result:
        return await trio.to_thread.run_sync(use, self.sdk)


@asynccontextmanager
async def client(*steps: Step, **members: Any) -> AsyncIterator[Client]:
    host = FakeHost(steps=list(steps), **members)
    async with running_server(host, (OpenAIResponses(host),)) as server:
        with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="local", max_retries=0) as sdk:
            yield Client(sdk, host)


@contract("RESP-031", "ROBJ-006", "HTTP-003")
async def test_create() -> None:
    async with client(*script("Hel", "lo", reasoning=["hm"])) as use:
        made = await use(lambda sdk: sdk.responses.create(model=CARD.id, input="Hi", instructions="Be brief."))
        assert made.output_text == "Hello"
        assert made.status == "completed"
        assert made.usage is not None
        assert (made.usage.input_tokens, made.usage.output_tokens, made.usage.total_tokens) == (11, 7, 18)
        assert made.usage.input_tokens_details.cached_tokens == 4
        assert [turn.role for turn in use.host.requests[0].turns] == ["developer", "user"]


@contract("RESP-031", "RSSE-012")
async def test_the_stream_helper() -> None:
    def use_stream(sdk: openai.OpenAI) -> tuple[list[str], Any]:
        with sdk.responses.stream(model=CARD.id, input="Hi", reasoning={"summary": "auto"}) as stream:
            return [event.type for event in stream], stream.get_final_response()

    async with client(*script("Hel", "lo", reasoning=["h", "m"])) as use:
        kinds, final = await use(use_stream)
        assert final.output_text == "Hello"
        assert final.output[0].content[0].text == "hm"
        assert kinds.count("response.output_text.delta") == 2
        assert kinds[-1] == "response.completed"


@contract("RESP-031", "RITEM-006", "RITEM-025")
async def test_a_tool_round_trip_with_replayed_items() -> None:
    async with client(*CALLS) as use:
        first = await use(lambda sdk: sdk.responses.create(model=CARD.id, input="Weather?", tools=TOOLS))
        reasoning, call = first.output
        assert (reasoning.type, call.type) == ("reasoning", "function_call")
        assert call.type == "function_call"
        assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
        replay: Any = [
            {"role": "user", "content": "Weather?"},
            *(item.model_dump() for item in first.output),
            {"type": "function_call_output", "call_id": call.call_id, "output": "21 C"},
        ]
        use.host.steps = script("It is 21 C.")
        second = await use(lambda sdk: sdk.responses.create(model=CARD.id, input=replay, tools=TOOLS))
        assert second.output_text == "It is 21 C."
        assert [turn.role for turn in use.host.requests[-1].turns] == ["user", "assistant", "tool"]
        assert use.host.requests[-1].turns[1].calls[0].arguments == {"city": "Paris"}


@contract("RESP-031", "RSTORE-003")
async def test_a_tool_round_trip_over_a_chain() -> None:
    async with client(*CALLS) as use:
        first = await use(lambda sdk: sdk.responses.create(model=CARD.id, input="Weather?", tools=TOOLS))
        answered: Any = [{"type": "function_call_output", "call_id": "call_1", "output": "21 C"}]
        use.host.steps = script("It is 21 C.")
        second = await use(
            lambda sdk: sdk.responses.create(
                model=CARD.id, input=answered, tools=TOOLS, previous_response_id=first.id, stream=False
            )
        )
        assert second.previous_response_id == first.id
        roles = [turn.role for turn in use.host.requests[-1].turns]
        assert roles == ["user", "assistant", "tool"]


@contract("RESP-031", "RSTORE-012", "RSTORE-013", "RSTORE-014")
async def test_resources() -> None:
    async with client(*script("Hello")) as use:
        made = await use(lambda sdk: sdk.responses.create(model=CARD.id, input="Hi"))
        again = await use(lambda sdk: sdk.responses.retrieve(made.id))
        assert again == made
        listed = await use(lambda sdk: list(sdk.responses.input_items.list(made.id, limit=1)))
        assert [item.type for item in listed] == ["message"]
        await use(lambda sdk: sdk.responses.delete(made.id))
        with pytest.raises(openai.NotFoundError) as caught:
            await use(lambda sdk: sdk.responses.retrieve(made.id))
        assert caught.value.code == "response_not_found"
        with pytest.raises(openai.BadRequestError) as refused:
            await use(lambda sdk: sdk.responses.cancel(made.id))
        assert refused.value.code == "background_not_supported"
        with pytest.raises(openai.NotFoundError) as compacted:
            await use(lambda sdk: sdk.responses.compact(model=CARD.id, input="Hi"))
        assert compacted.value.code == "compaction_not_supported"


@contract("RESP-031", "RTOK-003")
async def test_counting() -> None:
    async with client() as use:
        counted = await use(lambda sdk: sdk.responses.input_tokens.count(model=CARD.id, input="Hi"))
        assert (counted.object, counted.input_tokens) == ("response.input_tokens", 11)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Overloaded("full"), openai.RateLimitError),
        (QueueTimeout("late"), openai.InternalServerError),
        (EngineUnavailable("gone"), openai.InternalServerError),
    ],
)
async def test_errors_become_the_clients_own(error: Exception, kind: type[openai.APIStatusError]) -> None:
    async with client(on_enter=[error]) as use:
        with pytest.raises(kind) as caught:
            await use(lambda sdk: sdk.responses.create(model=CARD.id, input="Hi"))
        assert caught.value.code == error.code  # type: ignore[attr-defined]


@contract("RESP-031", "ERR-001")
async def test_refusals_become_the_clients_own() -> None:
    async with client() as use:
        with pytest.raises(openai.NotFoundError):
            await use(lambda sdk: sdk.responses.create(model="other", input="Hi"))
        with pytest.raises(openai.BadRequestError) as caught:
            await use(lambda sdk: sdk.responses.create(model=CARD.id, input="Hi", truncation="auto"))
        assert (caught.value.param, caught.value.code) == ("truncation", "unsupported_parameter")


@contract("RESP-031", "ROBJ-009")
async def test_a_failure_inside_a_stream() -> None:
    def read(sdk: openai.OpenAI) -> Any:
        return list(sdk.responses.create(model=CARD.id, input="Hi", stream=True))[-1]

    async with client(*script("Hel", end=EngineUnavailable("gone"))) as use:
        last = await use(read)
        assert last.type == "response.failed"
        assert last.response.error.message == "gone"


@contract("RESP-031", "ROBJ-008")
async def test_a_limit_inside_a_stream() -> None:
    def read(sdk: openai.OpenAI) -> Any:
        return list(sdk.responses.create(model=CARD.id, input="Hi", stream=True))[-1]

    async with client(*script("Hel", end=finished(FinishReason.OUTPUT_LIMIT))) as use:
        last = await use(read)
        assert last.type == "response.incomplete"
        assert last.response.incomplete_details.reason == "max_output_tokens"


@contract("RESP-031", "D13")
async def test_a_cancelled_stream_ends_the_generation() -> None:
    def read_three(sdk: openai.OpenAI) -> str:
        stream = sdk.responses.create(model=CARD.id, input="Hi", stream=True)
        events: Any = [event for event, _ in zip(stream, range(3), strict=False)]
        stream.close()
        return str(events[0].response.id)

    async with client(*script("Hel")[:-1], trio.Event()) as use:
        response_id = await use(read_three)
        await until(lambda: use.host.open_generations == 0)
        kept = await use(lambda sdk: sdk.responses.retrieve(response_id))
        assert kept.status == "cancelled"
