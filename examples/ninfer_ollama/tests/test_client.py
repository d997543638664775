"""The real client (`pip install ollama`) over a socket: it chats, streams, calls a tool, and reads lists and errors."""

from collections.abc import Callable
from typing import Any

import ollama
import pytest
import trio
from ninfer_ollama import OllamaChat

from ninfer.testing import CARD, FakeHost, Step, call_made, running_server, script

HELLO = [{"role": "user", "content": "Hello"}]


async def client_does(act: Callable[[ollama.Client], Any], *steps: Step) -> tuple[Any, FakeHost]:
    """What `act` makes of a client of a server whose host plays `steps`."""
    host = FakeHost(steps=steps or script("Hel", "lo", reasoning=["hm"]))
    async with running_server(host, [OllamaChat(host)]) as server:
        client = ollama.Client(host=server.base_url, trust_env=False)
        return await trio.to_thread.run_sync(act, client), host


async def test_a_chat() -> None:
    answer, _ = await client_does(lambda client: client.chat(CARD.id, HELLO, options={"seed": 3}, think=True))
    assert (answer.message.content, answer.message.thinking) == ("Hello", "hm")
    assert (answer.done_reason, answer.eval_count) == ("stop", 7)


async def test_a_stream() -> None:
    chunks, _ = await client_does(lambda client: list(client.chat(CARD.id, HELLO, stream=True)))
    assert [chunk.message.content for chunk in chunks] == ["", "Hel", "lo", ""]
    assert [chunk.done for chunk in chunks] == [False, False, False, True]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_tool_loop(stream: bool) -> None:
    def get_weather(city: str, days: int) -> str:
        """Tell the weather.

        Args:
            city: Where.
            days: How far ahead.
        """
        return f"{days} days of rain in {city}"

    def loop(client: ollama.Client) -> Any:
        asked: Any = client.chat(CARD.id, HELLO, tools=[get_weather], stream=stream)
        pieces = list(asked) if stream else [asked]
        (message,) = [piece.message for piece in pieces if piece.message.tool_calls]
        (call,) = message.tool_calls
        result = {"role": "tool", "tool_name": call.function.name, "content": get_weather(**call.function.arguments)}
        return client.chat(CARD.id, [*HELLO, message, result], tools=[get_weather])

    started, *_, end = script()
    _, host = await client_does(loop, started, call_made("get_weather", {"city": "Paris", "days": 2}), end)
    first, second = host.requests
    assert first.tools[0].parameters["properties"].keys() == {"city", "days"}  # type: ignore[index]
    assert second.turns[1].calls[0].arguments == {"city": "Paris", "days": 2}
    assert second.turns[2].text == "2 days of rain in Paris"
    assert second.turns[2].call_id == second.turns[1].calls[0].id


async def test_lists() -> None:
    listed, _ = await client_does(lambda client: client.list())
    assert [(model.model, model.size) for model in listed.models] == [(CARD.id, CARD.weight_bytes)]
    running, _ = await client_does(lambda client: client.ps())
    assert [model.context_length for model in running.models] == [CARD.max_context_tokens]
    shown, _ = await client_does(lambda client: client.show(CARD.id))
    assert shown.modelinfo["ninfer.context_length"] == CARD.max_context_tokens
    assert "tools" in shown.capabilities


async def test_errors_are_the_clients_own() -> None:
    def ask(client: ollama.Client) -> ollama.ResponseError:
        with pytest.raises(ollama.ResponseError) as caught:
            list(client.chat("llama3", HELLO, stream=True))
        return caught.value

    error, _ = await client_does(ask)
    assert (error.status_code, error.error) == (404, "model: 'llama3' does not exist here")
