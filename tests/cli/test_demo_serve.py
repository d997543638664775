"""`python -m ninfer serve` with nothing named: the demonstration model talks sense to the official clients, greedily.

One declaration of three tools serves all requests, so that choosing is choosing; what goes into the arguments stands in
the request alone, and what the answer says stands in the tool's result alone. How often the model is right on words
that nobody chose is in docs/demo-model.md; here are requests that it gets right.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import attrs
import openai
import pytest

from ninfer.cli.serve import embedded_artifact
from tests.cli.test_serve import Process, served

pytestmark = pytest.mark.slow
MODEL = "ninfer-demo"
GREEDY: Any = {"model": MODEL, "temperature": 0}
CLAUDE: Any = {"model": MODEL, "max_tokens": 400, "extra_body": {"temperature": 0}}
"""The same: this client has no argument for a temperature any more."""


@attrs.frozen
class Declared:
    """A tool, whose parameters are all required."""

    name: str
    description: str
    parameters: dict[str, str]

    def schema(self) -> dict[str, Any]:
        properties = {name: {"type": kind} for name, kind in self.parameters.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}


@attrs.frozen
class Loop:
    """A request, the one call that fits, what the tool says, and the answer."""

    request: str
    tool: str
    arguments: dict[str, object]
    result: str
    answer: str


TOOLS = (
    Declared("get_weather", "Get the weather of a city.", {"city": "string", "days": "integer"}),
    Declared("book_table", "Book a table in a restaurant.", {"restaurant": "string", "guests": "integer"}),
    Declared("print_document", "Print a document.", {"document": "string", "copies": "integer"}),
)
LOOPS = (
    Loop(
        "Get the weather with the city Lisbon and the days 3. What is the temperature?",
        "get_weather",
        {"city": "Lisbon", "days": 3},
        '{"temperature": 21, "wind": "calm"}',
        "The temperature is 21.",
    ),
    Loop(
        "Book a table for me with the restaurant Blue Anchor and the guests 6. What is the booking?",
        "book_table",
        {"restaurant": "Blue Anchor", "guests": 6},
        '{"booking": "T-4821", "time": "19:30"}',
        "The booking is T-4821.",
    ),
    Loop(
        "Print a document for me with the copies 12 and the document annual report. What is the job?",
        "print_document",
        {"document": "annual report", "copies": 12},
        '{"job": "J-310", "pages": 48}',
        "The job is J-310.",
    ),
)
SUM = "What is 768 + 457?"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def process(cache: Path) -> Iterator[Process]:
    """A server that nothing was named to."""
    with served(None, cache) as running:
        yield running


@pytest.fixture
def sdk(process: Process) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{process.base_url}/v1", api_key="x", max_retries=0, timeout=120) as made:
        yield made


@pytest.mark.contract("D19")
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.tool)
def test_a_tool_loop_in_chat(sdk: openai.OpenAI, loop: Loop) -> None:
    """Streamed, then whole."""
    tools: Any = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema()},
        }
        for tool in TOOLS
    ]
    messages: list[Any] = [{"role": "user", "content": loop.request}]
    with sdk.chat.completions.stream(messages=messages, tools=tools, **GREEDY) as events:
        first = events.get_final_completion().choices[0]
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls or []
    assert (call.function.name, json.loads(call.function.arguments)) == (loop.tool, loop.arguments)
    messages += [
        first.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": loop.result},
    ]
    second = sdk.chat.completions.create(messages=messages, tools=tools, **GREEDY).choices[0]
    assert (second.message.content, second.finish_reason) == (loop.answer, "stop")


@pytest.mark.contract("D19")
def test_a_tool_loop_in_messages(process: Process) -> None:
    tools: Any = [{"name": tool.name, "description": tool.description, "input_schema": tool.schema()} for tool in TOOLS]
    loop = LOOPS[1]
    messages: list[Any] = [{"role": "user", "content": loop.request}]
    asked: Any = {"tools": tools, **CLAUDE}
    with anthropic.Anthropic(base_url=process.base_url, api_key="x", max_retries=0, timeout=120) as claude:
        first = claude.messages.create(messages=messages, **asked)
        assert first.stop_reason == "tool_use"
        (call,) = (block for block in first.content if block.type == "tool_use")
        assert (call.name, call.input) == (loop.tool, loop.arguments)
        messages += [
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": loop.result}]},
        ]
        second = claude.messages.create(messages=messages, **asked)
    assert [block.text for block in second.content if block.type == "text"] == [loop.answer]
    assert second.stop_reason == "end_turn"


@pytest.mark.contract("D19")
def test_a_tool_loop_in_responses(sdk: openai.OpenAI) -> None:
    tools: Any = [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.schema()}
        for tool in TOOLS
    ]
    loop = LOOPS[0]
    items: list[Any] = [{"role": "user", "content": loop.request}]
    first = sdk.responses.create(input=items, tools=tools, store=False, **GREEDY)
    (call,) = (item for item in first.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == (loop.tool, loop.arguments)
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": loop.result})
    second = sdk.responses.create(input=items, tools=tools, store=False, **GREEDY)
    assert (second.output_text, second.status) == (loop.answer, "completed")


def both_say(process: Process, said: str) -> None:
    """Chat and Messages answer the sum with the same text, what the model thought beside it and not in it."""
    question: Any = [{"role": "user", "content": SUM}]
    with openai.OpenAI(base_url=f"{process.base_url}/v1", api_key="x", max_retries=0, timeout=120) as gpt:
        chat: Any = gpt.chat.completions.create(messages=question, **GREEDY).choices[0].message
    assert chat.content == said
    assert "Digits 5 2 2 1" in chat.reasoning_content
    with anthropic.Anthropic(base_url=process.base_url, api_key="x", max_retries=0, timeout=120) as claude:
        blocks = claude.messages.create(messages=question, **CLAUDE).content
    assert [block.text for block in blocks if block.type == "text"] == [said]


@pytest.mark.contract("D19")
def test_a_question_that_no_tool_is_for(process: Process, sdk: openai.OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == [MODEL]
    both_say(process, "768 + 457 = 1225")
    assert sdk.responses.create(input=SUM, store=False, **GREEDY).output_text == "768 + 457 = 1225"


@pytest.mark.contract("LIFE-001")
def test_it_can_be_named_and_nothing_beside_it(cache: Path) -> None:
    """The same file by its path: one artifact, both families of protocols."""
    artifact = embedded_artifact()
    with served(artifact, cache) as process:
        assert process.model == MODEL
        both_say(process, "768 + 457 = 1225")
    command = [sys.executable, "-m", "ninfer", "serve", str(artifact), str(artifact), "--port", "0"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode != 0
