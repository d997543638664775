"""Cases from the field, from a body to what is on the wire. The ids are those of the bug log.

The model's output is given exactly (`[[raw:...]]`); all behind it is real. Whatever is streamed must add up to the
aggregate.
"""

import base64
import json
from typing import Any

import attrs
import pytest

from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_chat.order import OrderChecker
from ninfer.server.app import create_app
from ninfer.testing import asgi_call, post_json, sse_data
from tests.fuzz.house import MODEL, open_house

contract = pytest.mark.contract
CHAT = "/v1/chat/completions"


def tool(name: str, **properties: Any) -> dict[str, Any]:
    function = {"name": name, "parameters": {"type": "object", "properties": properties}}
    return {"type": "function", "function": function}


TEXT, NUMBER, BOOLEAN = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
TOOLS = [
    tool("read", path=TEXT, offset=NUMBER, all=BOOLEAN, cmd=TEXT),
    tool("ls"),
    tool("wipe"),
    tool("ping", host=TEXT),
]


@attrs.frozen(kw_only=True)
class Answer:
    """What a client gets, streamed or not."""

    content: str
    reasoning: str
    calls: tuple[tuple[str, Any], ...]
    reason: str


def called(calls: list[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((one["function"]["name"], json.loads(one["function"]["arguments"])) for one in calls)


def whole(answer: Any) -> Answer:
    choice = answer["choices"][0]
    message = choice["message"]
    return Answer(
        content=message["content"] or "",
        reasoning=message.get("reasoning_content", ""),
        calls=called(message.get("tool_calls", [])),
        reason=choice["finish_reason"],
    )


def added_up(body: bytes) -> Answer:
    checker, deltas, reason = OrderChecker(), [], None
    for data in sse_data(body):
        chunk = data if data == "[DONE]" else json.loads(data)
        checker.add(chunk)
        for choice in chunk["choices"] if isinstance(chunk, dict) else []:
            deltas.append(choice["delta"])
            reason = choice["finish_reason"] or reason
    checker.finish()
    assert isinstance(reason, str)
    return Answer(
        content="".join(delta.get("content", "") for delta in deltas),
        reasoning="".join(delta.get("reasoning_content", "") for delta in deltas),
        calls=called([call for delta in deltas for call in delta.get("tool_calls", [])]),
        reason=reason,
    )


async def say(text: str, *, tolerant: bool = False, **members: Any) -> Answer:
    """The answer when the model says `text`."""
    user = {"role": "user", "content": f"[[raw:{base64.b64encode(text.encode()).decode()}]]"}
    body = {"model": MODEL, "messages": [user], "tools": TOOLS, "max_tokens": 900, "seed": 7, **members}
    async with open_house(tolerant_tool_calls=tolerant) as house:
        app = create_app(house.service, (OpenAIChat(house.service),))
        answer = whole((await post_json(app, CHAT, body)).json())
        streamed = await post_json(app, CHAT, {**body, "stream": True})
        assert streamed.status == 200
        assert added_up(streamed.body) == answer
    return answer


def call(name: str, end: str = "\n</tool_call>", **arguments: str) -> str:
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inside}</function>{end}"


READ = (("read", {"path": "a.txt"}),)


@contract("TOOL-004", "TOOL-008", "TOOL-009", "TMPL-006")
@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        pytest.param(f"\n\n{call('read', path='a.txt')}", "", READ, id="TOOL-08"),
        pytest.param(
            f"I'll check the file first.\n\n{call('read', path='a.txt')}",
            "I'll check the file first.",
            READ,
            id="TOOL-09",
        ),
        pytest.param(call("read", offset="130"), "", (("read", {"offset": 130}),), id="TOOL-06"),
        pytest.param(
            call("read", all="True", cmd="sed 's#<parameter=x>1</parameter>#y#' f"),
            "",
            (("read", {"all": True, "cmd": "sed 's#<parameter=x>1</parameter>#y#' f"}),),
            id="TOOL-12",
        ),
        pytest.param("<tool_call is what the docs call it.", "<tool_call is what the docs call it.", (), id="TOOL-16"),
        pytest.param("ends in <tool_", "ends in <tool_", (), id="TOOL-16 at the end"),
    ],
)
async def test_calls(text: str, content: str, calls: Any) -> None:
    answer = await say(text, enable_thinking=False)
    assert (answer.content, answer.calls) == (content, calls)
    assert answer.reason == ("tool_calls" if calls else "stop")


@contract("TOOL-013", "TOOL-017", "TOOL-022")
async def test_a_missing_closer_and_a_call_left_in_thinking() -> None:
    open_ended = call("ping", end="", host="example.org")  # TOOL-13
    assert await say(open_ended, enable_thinking=False) == Answer(
        content=open_ended, reasoning="", calls=(), reason="stop"
    )
    tolerant = await say(open_ended, enable_thinking=False, tolerant=True)
    assert (tolerant.content, tolerant.calls) == ("", (("ping", {"host": "example.org"}),))
    stranded = f"<think>\nNeed the list.\n{call('ls')}"  # TOOL-10
    strict = await say(stranded)
    assert (strict.content, strict.calls, strict.reason) == ("", (), "stop")
    assert strict.reasoning == f"Need the list.\n{call('ls')}"
    assert (await say(stranded, tolerant=True)).calls == (("ls", {}),)


@contract("TOOL-025", "CHAT-037")
async def test_markup_quoted_while_thinking_is_no_call() -> None:
    text = (
        "<think>\nI must not emit <tool_call><function=wipe></function></tool_call> here.\n</think>\n\nDone."  # TOOL-11
    )
    for tolerant in (False, True):
        answer = await say(text, tolerant=tolerant)
        assert (answer.content, answer.calls) == ("Done.", ())
        assert "<function=wipe>" in answer.reasoning


@contract("CHAT-043", "CHAT-044")
async def test_a_call_that_the_limit_cuts_is_no_call() -> None:
    answer = await say(call("read", path="x" * 400), max_tokens=80, enable_thinking=False)  # TOOL-15
    assert (answer.calls, answer.reason) == ((), "length")
    assert answer.content.startswith("<tool_call>")


@contract("TOOL-007", "TOOL-028", "TOOL-005")
async def test_a_schema_decides_no_call() -> None:
    answer = await say(call("read", offset="soon", unknown="x"), enable_thinking=False)
    assert answer.calls == (("read", {"offset": "soon", "unknown": "x"}),)


@contract("CHAT-015")
@pytest.mark.parametrize(
    ("text", "stop", "content"),
    [
        pytest.param("really?\nno", ["\n"], "really?", id="SSE-16"),
        pytest.param("alpha beta gamma delta", ["beta gamma"], "alpha ", id="SSE-18"),
        pytest.param("ABCDEFGHIJK", ["DEFGHIJ"], "ABC", id="SSE-15"),
        pytest.param("ends with </thi", ["x"], "ends with </thi", id="SSE-17"),
        pytest.param("안녕하세요 여러분 😀 ď", ["x"], "안녕하세요 여러분 😀 ď", id="SSE-12 and SSE-13"),
    ],
)
async def test_stops_and_borders(text: str, stop: list[str], content: str) -> None:
    assert (await say(text, stop=stop, enable_thinking=False)).content == content


@contract("ERR-003")
@pytest.mark.parametrize("member", ["x", "tools", "messages", "chat_template_kwargs", "prompt_cache_options"])
@pytest.mark.parametrize("depth", [300, 3000, 10_000])
async def test_deep_nesting_is_refused(member: str, depth: int) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], member: "@"}
    deep = json.dumps(body).replace('"@"', "[" * depth + "]" * depth)  # SEC-04, SEC-05
    async with open_house() as house:
        answer = await asgi_call(create_app(house.service, (OpenAIChat(house.service),)), "POST", CHAT, deep.encode())
    assert answer.status == 400
