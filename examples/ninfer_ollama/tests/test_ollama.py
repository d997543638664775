"""The protocol on `ninfer.testing`: what goes in, what comes out, what is refused; test_client has the real client."""

from typing import Any

import pytest
import trio
import trio.testing
from ninfer_ollama import OllamaChat

from ninfer.conversation import Overloaded, QueueTimeout, SamplingFields, ThinkingFields, Turn
from ninfer.testing import (
    CARD,
    ASGIAnswer,
    FakeHost,
    asgi_call,
    call_made,
    create_app,
    error_samples,
    generations,
    json_lines,
    post_json,
    script,
)

HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {"name": "get_weather", "description": "Tells.", "parameters": {"type": "object", "properties": {"city": {}}}}


async def chat(host: FakeHost, **members: Any) -> ASGIAnswer:
    body = {"model": CARD.id, "messages": HELLO, **members}
    return await post_json(create_app(host, [OllamaChat(host)]), "/api/chat", body)


async def turns(*messages: dict[str, Any]) -> tuple[Turn, ...]:
    host = FakeHost()
    answer = await chat(host, messages=list(messages))
    assert answer.status == 200, answer.json()
    return host.requests[0].turns


# Answers


async def test_a_stream_is_lines_of_json() -> None:
    answer = await chat(FakeHost(steps=script("Hel", "lo", reasoning=["hm"])))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    lines = json_lines(answer.body)
    assert [line["message"] for line in lines] == [
        {"role": "assistant", "content": "", "thinking": "hm"},
        {"role": "assistant", "content": "Hel"},
        {"role": "assistant", "content": "lo"},
        {"role": "assistant", "content": ""},
    ]
    assert [line["done"] for line in lines] == [False, False, False, True]
    assert {line["model"] for line in lines} == {CARD.id}


async def test_the_last_line_says_how_it_ended_and_what_it_took(autojump_clock: trio.testing.MockClock) -> None:
    answer = await chat(FakeHost(steps=[3, *script("Hello")]))
    last = json_lines(answer.body)[-1]
    assert {name: last[name] for name in last if name not in ("model", "created_at", "message")} == {
        "done": True,
        "done_reason": "stop",
        "total_duration": 3_000_000_000,
        "load_duration": 0,
        "prompt_eval_count": 11,
        "prompt_eval_duration": 250_000_000,
        "eval_count": 7,
        "eval_duration": 500_000_000,
    }


@pytest.mark.parametrize("name", generations())
async def test_a_whole_answer_says_what_its_stream_says(name: str, autojump_clock: trio.testing.MockClock) -> None:
    steps = generations()[name]
    lines = json_lines((await chat(FakeHost(steps=steps))).body)
    whole = (await chat(FakeHost(steps=steps), stream=False)).json()
    for member in ("content", "thinking"):
        assert whole["message"].get(member, "") == "".join(line["message"].get(member, "") for line in lines)
    calls = [call for line in lines for call in line["message"].get("tool_calls", [])]
    assert whole["message"].get("tool_calls", []) == calls
    unequal = {"message", "created_at"}
    assert {k: v for k, v in whole.items() if k not in unequal} == {
        k: v for k, v in lines[-1].items() if k not in unequal
    }
    assert whole["done_reason"] == ("length" if "limit" in name else "stop")


async def test_a_silence_puts_nothing_between_the_lines(autojump_clock: trio.testing.MockClock) -> None:
    started, *rest = script("Hel", "lo")
    answer = await chat(FakeHost(steps=[started, 30, *(step for event in rest for step in (30, event))]))
    assert len(json_lines(answer.body)) == 3


@pytest.mark.parametrize("error", error_samples(), ids=lambda error: type(error).__name__)
async def test_errors(error: Any) -> None:
    before = await chat(FakeHost(on_enter=[error]))
    assert (before.status >= 400, before.json()) == (True, {"error": error.message})
    inside = await chat(FakeHost(steps=[*script("Hel")[:-1], error]))
    assert json_lines(inside.body)[-1] == {"error": error.message}
    whole = await chat(FakeHost(steps=[*script("Hel")[:-1], error]), stream=False)
    assert (whole.status, whole.json()) == (before.status, {"error": error.message})


async def test_an_overload_is_told_by_its_status(autojump_clock: trio.testing.MockClock) -> None:
    assert (await chat(FakeHost(on_enter=[Overloaded("full")]))).status == 429
    assert (await chat(FakeHost(steps=[60, QueueTimeout("late")]))).status == 503


async def test_a_client_that_leaves_ends_the_work() -> None:
    host = FakeHost(steps=[*script("Hello")[:-1], trio.Event()])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(chat, host)
        await trio.testing.wait_all_tasks_blocked()
        assert host.open_generations == 1
        nursery.cancel_scope.cancel()
    assert (host.open_generations, host.left) == (0, 1)


# Requests


async def test_what_is_asked_for() -> None:
    host = FakeHost()
    options = {
        "temperature": 0.5, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1,
        "seed": 7, "num_predict": 20, "stop": ["END"], "num_ctx": 2048, "num_gpu": 1, "repeat_penalty": 1.0,
    }  # fmt: skip
    answer = await chat(host, options=options, think="low", keep_alive="5m", format="", model=f"{CARD.id}:latest")
    assert answer.status == 200, answer.json()
    (request,) = host.requests
    assert request.sampling == SamplingFields(
        temperature=0.5, top_k=5, top_p=0.9, min_p=0.1, presence_penalty=1, frequency_penalty=-1, seed=7
    )
    assert (request.max_output_tokens, request.stop, request.thinking) == (20, ("END",), ThinkingFields(effort="low"))


@pytest.mark.parametrize(
    ("members", "thinking", "limit"),
    [
        ({}, ThinkingFields(), None),
        ({"think": True}, ThinkingFields(enabled=True), None),
        ({"think": False, "options": {"num_predict": -2}}, ThinkingFields(enabled=False), None),
        ({"think": "high", "options": {"num_predict": 0}}, ThinkingFields(effort="high"), 0),
    ],
)
async def test_thinking_and_limits(members: dict[str, Any], thinking: ThinkingFields, limit: int | None) -> None:
    host = FakeHost()
    await chat(host, **members)
    assert (host.requests[0].thinking, host.requests[0].max_output_tokens) == (thinking, limit)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"format": "json"}, "format: \"json\" is not supported: constrained output is not in this build"),
        ({"format": {"type": "object"}}, "format: an object of 1 member is not supported"),
        ({"logprobs": True}, "logprobs: true is not supported"),
        ({"top_logprobs": 3}, "top_logprobs: 3 is not supported"),
        ({"truncate": True}, "truncate: true is not supported"),
        ({"shift": True}, "shift: true is not supported"),
        ({"keep_alive": 0}, "keep_alive: 0 is not supported: the model stays loaded"),
        ({"keep_alive": "0s"}, "keep_alive: \"0s\" is not supported"),
        ({"keep_alive": []}, "keep_alive: expected a number, a string or null"),
        ({"options": {"repeat_penalty": 1.1}}, "options.repeat_penalty: 1.1 is not supported: replies are drawn by"),
        ({"options": {"mirostat": 2}}, "options.mirostat: 2 is not supported"),
        ({"options": {"tfs_z": 0.5}}, "options.tfs_z: 0.5 is not supported"),
        ({"options": {"dry_multiplier": 1}}, "options.dry_multiplier: 1 is not supported"),
        ({"options": {"top_k": 40}}, "options.top_k: expected an integer from 0 to 20, got 40"),
        ({"options": {"seed": "7"}}, "options.seed: expected an integer from"),
        ({"options": {"stop": "END"}}, "options.stop: expected an array, got \"END\""),
        ({"options": {"num_ctx": 8192}}, "options.num_ctx: 8192 is not supported: this server's context is 4096"),
        ({"options": []}, "options: expected an object"),
        ({"think": "max"}, "think: expected one of \"low\", \"medium\", \"high\", got \"max\""),
        ({"stream": "no"}, "stream: expected a boolean, got \"no\""),
        ({"messages": [{"role": "robot"}]}, "messages[0].role: expected one of"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content: expected a string, got 5"),
        ({"messages": [{**HELLO[0], "images": ["aGk="]}]}, "messages[0].images: a part of type \"image\" needs vision"),
        ({"tools": [{"type": "function"}]}, "tools[0].function: is required"),
        ({"tools": [{"function": {"name": "a b"}}]}, "tools[0].function.name: expected 1 to 128 letters"),
        ({"tools": [{"function": WEATHER}] * 2}, "tools[1].function.name: \"get_weather\" is declared twice"),
    ],
)  # fmt: skip
async def test_refusals(members: dict[str, Any], message: str) -> None:
    host = FakeHost()
    answer = await chat(host, **members)
    assert answer.status == 400
    assert answer.json()["error"].startswith(message)
    assert not host.requests


async def test_a_model_that_is_not_there() -> None:
    answer = await chat(FakeHost(), model="llama3")
    assert (answer.status, answer.json()) == (404, {"error": "model: 'llama3' does not exist here"})


async def test_no_messages_ask_whether_the_model_is_loaded() -> None:
    host = FakeHost()
    answer = (await chat(host, messages=[])).json()
    assert (answer["done"], answer["done_reason"], host.requests) == (True, "load", [])


# Tools


async def test_declarations_and_calls() -> None:
    host = FakeHost(steps=[script()[0], call_made("get_weather", {"city": "Paris", "days": 2}), script()[-1]])
    answer = await chat(host, tools=[{"type": "function", "function": WEATHER}], stream=False)
    (tool,) = host.requests[0].tools
    assert tool.declaration == {"type": "function", "function": WEATHER}
    assert tool.parameters == WEATHER["parameters"]
    call = {"id": "call_1", "function": {"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}}
    assert answer.json()["message"] == {"role": "assistant", "content": "", "tool_calls": [call]}


def called(*names: str, **more: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"function": {"name": name, "arguments": {"n": name}}, **more} for name in names],
    }


async def test_results_find_their_calls_without_ids() -> None:
    asked = called("f", "g", "f")
    results = [{"role": "tool", "content": str(n), "tool_name": name} for n, name in enumerate(["f", "g", "f"])]
    found = await turns(*HELLO, asked, *results)
    ids = [call.id for call in found[1].calls]
    assert len(set(ids)) == 3
    assert [(turn.call_id, turn.text) for turn in found[2:]] == [(ids[0], "0"), (ids[1], "1"), (ids[2], "2")]


async def test_results_come_in_the_order_of_their_calls() -> None:
    results = [{"role": "tool", "content": name, "tool_name": name} for name in ("g", "f")]
    found = await turns(*HELLO, called("f", "g"), *results)
    assert [turn.text for turn in found[2:]] == ["f", "g"]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([called("f")], "messages[1].tool_calls[0]: the call \"call_1_0\" has no result right behind its turn"),
        ([called("f"), HELLO[0]], "messages[1].tool_calls[0]: the call \"call_1_0\" has no result"),
        ([{"role": "tool", "content": "r"}], "messages[1]: \"\" is no call of the assistant's turn before"),
        ([called("f"), {"role": "tool", "tool_name": "g"}], "messages[2]: \"\" is no call of the assistant's turn"),
    ],
)  # fmt: skip
async def test_calls_and_results_that_do_not_belong_together(messages: list[Any], message: str) -> None:
    answer = await chat(FakeHost(), messages=[*HELLO, *messages])
    assert answer.status == 400
    assert answer.json()["error"].startswith(message)


async def test_ids_that_are_given_are_kept() -> None:
    result = {"role": "tool", "content": "r", "tool_call_id": "call_9"}
    found = await turns(*HELLO, called("f", id="call_9"), result)
    assert (found[1].calls[0].id, found[2].call_id) == ("call_9", "call_9")


async def test_half_a_character_of_a_client_that_cuts_strings_is_mended() -> None:
    cut = [{**HELLO[0], "content": "a\ud83d"}, {"role": "assistant", "thinking": "\ud83d", **called("f\ud83d")}]
    host = FakeHost()
    assert (await chat(host, messages=cut)).status == 400  # in a name
    cut[1] = {
        "role": "assistant",
        "thinking": "\ud83d",
        "tool_calls": [{"function": {"name": "f", "arguments": {"a": "\ud83d"}}}],
    }
    assert (await chat(host, messages=[*cut, {"role": "tool", "content": "r"}])).status == 200
    asked, answered, _ = host.requests[0].turns
    assert (asked.text, answered.reasoning, answered.calls[0].arguments) == ("a\ufffd", "\ufffd", {"a": "\ufffd"})


async def test_a_history_with_thinking() -> None:
    answer = {"role": "assistant", "thinking": "hm", "content": "Hello"}
    system, _, turn, _ = await turns({"role": "system", "content": "Be kind."}, *HELLO, answer, *HELLO)
    assert (system.role, system.text) == ("system", "Be kind.")
    assert (turn.role, turn.reasoning, turn.text) == ("assistant", "hm", "Hello")


# What clients ask besides


async def test_the_model() -> None:
    app = create_app(FakeHost(), [OllamaChat(FakeHost())])
    (entry,) = (await asgi_call(app, "GET", "/api/tags")).json()["models"]
    assert (entry["name"], entry["model"], entry["size"]) == (CARD.id, CARD.id, CARD.weight_bytes)
    assert entry["details"]["quantization_level"] == CARD.dominant_format
    assert (await asgi_call(app, "GET", "/api/ps")).json() == {"models": [entry]}
    shown = (await post_json(app, "/api/show", {"model": CARD.id})).json()
    architecture = shown["model_info"]["general.architecture"]
    assert shown["model_info"][f"{architecture}.context_length"] == CARD.max_context_tokens
    assert {"completion", "tools"} <= set(shown["capabilities"])
    assert (await post_json(app, "/api/show", {"model": "llama3"})).status == 404
    assert (await asgi_call(app, "GET", "/api/version")).json() == {"version": "0.12.0"}


async def test_what_is_not_here_is_said_in_ollamas_words() -> None:
    answer = await asgi_call(create_app(FakeHost(), [OllamaChat(FakeHost())]), "POST", "/api/generate", b"{}")
    assert (answer.status, answer.json()) == (404, {"error": "POST /api/generate: not found"})
