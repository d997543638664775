"""Responses over the application: both forms of an answer, failures in time, silences, and the stored resources."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from ninfer.conversation import CallMade, EngineUnavailable, FinishReason, QueueTimeout, Started, TextDelta, ToolCall
from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.protocols.openai_responses.encode import Answer, WireEvent
from ninfer.protocols.openai_responses.order import OrderChecker
from ninfer.server.app import create_app
from ninfer.server.running import RunningCalls
from ninfer.service.host import ProtocolFlags
from ninfer.testing import CARD, ASGIAnswer, FakeHost, Step, asgi_call, finished, post_json, script

contract = pytest.mark.contract

CALL = CallMade(ToolCall(id="call_1", name="ns__f", arguments={"b": 1, "a": 2}))
TOOLS = [{"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f"}]}]
REPLY: list[Step] = [*script("Hel", "lo", reasoning=["hm"])[:-1], CALL, finished()]


class House:
    """A host, the protocol over it, and the application over both."""

    def __init__(self, steps: Sequence[Step] = REPLY, on_enter: Sequence[Step] = (), **flags: int) -> None:
        self.host = FakeHost(steps=list(steps), on_enter=on_enter, flags=ProtocolFlags(**flags))  # type: ignore[arg-type]
        self.protocol = OpenAIResponses(self.host)
        self.running = RunningCalls()
        self.app = create_app(self.host, (self.protocol,), running=self.running)

    async def create(self, **members: object) -> ASGIAnswer:
        return await post_json(self.app, "/v1/responses", {"model": CARD.id, "input": "Hi", **members})

    async def made(self, **members: object) -> Any:
        answer = await self.create(**members)
        assert answer.status == 200, answer.body
        return answer.json()

    async def get(self, path: str, status: int = 200) -> Any:
        answer = await asgi_call(self.app, "GET", f"/v1/responses/{path}")
        assert answer.status == status, answer.body
        return answer.json()


def events_of(body: bytes) -> list[Any]:
    """The events of a stream, judged."""
    checker = OrderChecker()
    found = []
    for block in body.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            name, data = lines
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            checker.take(event)
            found.append(event)
    checker.end()
    return found


def error_of(answer: ASGIAnswer) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status, error["code"], error["param"]


def without_ids(value: Any) -> Any:
    """`value` without what is different each time."""
    if isinstance(value, list):
        return [without_ids(one) for one in value]
    if isinstance(value, dict):
        return {
            name: without_ids(one) for name, one in value.items() if name not in ("id", "created_at", "completed_at")
        }
    return value


@contract("RESP-001", "RESP-007", "RSSE-012", "RSSE-013", "TMPL-006")
async def test_stream_and_aggregate_say_the_same() -> None:
    house = House()
    whole = await house.made(tools=TOOLS, reasoning={"summary": "auto"})
    answer = await house.create(tools=TOOLS, reasoning={"summary": "auto"}, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert b"[DONE]" not in answer.body
    events = events_of(answer.body)
    assert without_ids(events[-1]["response"]) == without_ids(whole)
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call"]
    assert (whole["output"][2]["namespace"], whole["output"][2]["name"]) == ("ns", "f")
    assert whole["output"][2]["arguments"] == '{"b":1,"a":2}'


@contract("RESP-002")
async def test_another_model() -> None:
    assert error_of(await House().create(model="gpt-5.5")) == (404, "model_not_found", "model")


class Odd(Answer):
    """Says that an Item is there before it says so."""

    def open(self) -> list[WireEvent]:
        return super().open()[::-1]


@pytest.mark.parametrize("check", [False, True])
async def test_a_server_that_checks_its_events(check: bool, caplog: pytest.LogCaptureFixture) -> None:
    house = House(check_events=check)
    assert events_of((await house.create(stream=True)).body)[-1]["type"] == "response.completed"
    house.protocol.new_answer = Odd
    answer = await house.create(stream=True)
    assert (answer.status, b"response.completed" in answer.body) == ((500, False) if check else (200, True))
    assert ("begins with" in caplog.text) == check


@pytest.mark.parametrize("stream", [False, True])
@contract("D26")
async def test_the_header_names_what_was_left_out(stream: bool) -> None:
    house = House()
    hosted = [{"type": "web_search"}, *TOOLS, {"type": "file_search"}]
    answer = await house.create(tools=hosted, tool_choice="auto", stream=stream)
    assert answer.headers["x-ninfer-ignored-tools"] == "web_search, file_search"
    assert [tool.name for tool in house.host.requests[0].tools] == ["ns__f"]
    assert "x-ninfer-ignored-tools" not in (await house.create(tools=TOOLS, stream=stream)).headers


@contract("D26")
async def test_the_header_stays_short() -> None:
    hosted = [{"type": f"web_search_2025_{month:02}_{day:02}"} for month in range(99) for day in range(99)]
    header = (await House().create(tools=hosted)).headers["x-ninfer-ignored-tools"]
    assert header.startswith("web_search_2025_00_00, web_search_2025_00_01, ")
    assert header.endswith(", ...")
    assert len(header) < 1000


@pytest.mark.parametrize("stream", [False, True])
@contract("ROBJ-009", "D1", "ERR-032")
async def test_a_failure_before_the_head_is_a_plain_error(stream: bool) -> None:
    house = House(on_enter=[QueueTimeout("too long")])
    answer = await house.create(stream=stream)
    assert error_of(answer) == (503, "request_queue_timeout", None)
    assert answer.headers["content-type"] == "application/json"


@contract("ROBJ-009", "RSSE-006", "D1")
async def test_a_failure_afterwards_is_response_failed() -> None:
    house = House(script("Hel", end=EngineUnavailable("the engine has stopped")))
    events = events_of((await house.create(stream=True)).body)
    assert events[-1]["type"] == "response.failed"
    response = events[-1]["response"]
    assert response["error"] == {"code": "service_unavailable", "message": "the engine has stopped"}
    assert response["output"][0]["content"][0]["text"] == "Hel"
    await house.get(response["id"], 404)


@contract("ROBJ-009", "D1")
async def test_a_failure_after_nothing_but_comments_is_a_whole_stream(autojump_clock: trio.testing.MockClock) -> None:
    house = House(on_enter=[12.0, QueueTimeout("too long")])
    answer = await house.create(stream=True)
    assert answer.status == 200
    assert [event["type"] for event in events_of(answer.body)] == [
        *("response.created", "response.in_progress", "response.failed")
    ]


async def test_a_server_that_stops_says_so() -> None:
    house = House([Started(prompt_tokens=1, cached_tokens=0), TextDelta("a", "answer"), trio.Event()])
    answer = ASGIAnswer()
    body = json.dumps({"model": CARD.id, "input": "Hi", "stream": True}).encode()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: asgi_call(house.app, "POST", "/v1/responses", body, answer=answer))
        await trio.testing.wait_all_tasks_blocked(0.01)
        house.running.stop()
    last = events_of(answer.body)[-1]
    assert last["response"]["error"]["code"] == "service_unavailable"


@contract("D31")
async def test_a_long_silence_is_broken(autojump_clock: trio.testing.MockClock) -> None:
    steps = [Started(prompt_tokens=1, cached_tokens=0), 130.0, TextDelta("a", "answer"), 59.0, finished()]
    house = House(steps, on_enter=[70.0])
    answer = await house.create(stream=True)
    times = [(round(at), part) for at, part in answer.parts if b"event:" in part]
    start = times[0][0] - 60
    found = [
        (at - start, event["type"].removeprefix("response."))
        for at, part in times
        for event in (json.loads(one.split(b"\ndata: ")[1]) for one in part.split(b"\n\n") if one.startswith(b"event"))
    ]
    assert found[:5] == [
        (60, "created"),
        (60, "in_progress"),
        (120, "in_progress"),
        (180, "in_progress"),
        (200, "output_item.added"),
    ]
    assert found[-1] == (259, "completed")
    assert len([kind for _, kind in found if kind == "in_progress"]) == 3
    snapshots = [event["response"] for event in events_of(answer.body) if event["type"] == "response.in_progress"]
    assert snapshots[0] == snapshots[1] == snapshots[2]
    gaps = [later - before for (before, _), (later, _) in zip(answer.parts, answer.parts[1:], strict=False)]
    assert max(gaps) <= 5.01  # comments go on


@contract("RESP-008", "RSTORE-012", "RSTORE-017", "RSTORE-001")
async def test_retrieval() -> None:
    house = House()
    kept = await house.made(metadata={"a": "b"})
    streamed = events_of((await house.create(stream=True)).body)[-1]["response"]
    assert await house.get(kept["id"]) == kept
    assert await house.get(f"{kept['id']}?stream=false") == kept
    assert await house.get(streamed["id"]) == streamed
    dropped = await house.made(store=False)
    assert (await house.get(dropped["id"], 404))["error"]["code"] == "response_not_found"
    again = await house.create(previous_response_id=dropped["id"])
    assert error_of(again) == (404, "response_not_found", "previous_response_id")
    unkept = events_of((await house.create(stream=True, store=False)).body)[-1]["response"]
    assert (await house.get(unkept["id"], 404))["error"]["code"] == "response_not_found"


@contract("RSTORE-012", "ERR-028")
async def test_what_retrieval_refuses() -> None:
    house = House()
    kept = (await house.made())["id"]
    for query, param in (("stream=true", "stream"), ("starting_after=3", "starting_after"), ("include=x", "include")):
        error = (await house.get(f"{kept}?{query}", 400))["error"]
        assert (error["code"], error["param"]) == ("unsupported_parameter", param)
    assert (await house.get("resp_unknown", 404))["error"]["code"] == "response_not_found"


@contract("RSTORE-013", "RSTORE-017", "RSTORE-003")
async def test_deletion() -> None:
    house = House(script("Hello"))
    first = (await house.made(input="one"))["id"]
    second = (await house.made(input="two", previous_response_id=first))["id"]
    answer = await asgi_call(house.app, "DELETE", f"/v1/responses/{first}")
    assert answer.json() == {"id": first, "object": "response.deleted", "deleted": True}
    assert (await asgi_call(house.app, "DELETE", f"/v1/responses/{first}")).status == 404
    assert error_of(await house.create(previous_response_id=first))[1] == "response_not_found"
    third = await house.made(input="three", previous_response_id=second)
    assert third["previous_response_id"] == second
    assert [turn.text for turn in house.host.requests[-1].turns] == ["one", "Hello", "two", "Hello", "three"]


@contract("RSTORE-004", "RESP-004")
async def test_instructions_are_not_carried_on() -> None:
    house = House(script("Hello"))
    first = await house.made(instructions="Once.")
    assert first["instructions"] == "Once."
    await house.made(previous_response_id=first["id"])
    assert [turn.role for turn in house.host.requests[-1].turns] == ["user", "assistant", "user"]


@contract("RSTORE-006")
async def test_preserve_thinking_goes_down_the_chain() -> None:
    house = House(script("Hello", reasoning=["hm"]))
    first = await house.made(preserve_thinking=True)
    second = await house.made(previous_response_id=first["id"])
    await house.made(previous_response_id=second["id"])
    assert [request.thinking.preserve for request in house.host.requests] == [True, True, True]
    assert house.host.requests[-1].turns[1].reasoning == "hm"


@contract("RSTORE-014")
async def test_input_items() -> None:
    house = House(script("Hello"))
    items = [{"role": "user", "content": str(n), "id": f"msg_{n:02}"} for n in range(25)]
    kept = (await house.made(input=items))["id"]

    async def page(query: str) -> tuple[list[str], Any]:
        listed = await house.get(f"{kept}/input_items{query}")
        assert set(listed) == {"object", "data", "first_id", "last_id", "has_more"}
        assert listed["object"] == "list"
        found = [item["id"] for item in listed["data"]]
        assert [listed["first_id"], listed["last_id"]] == ([found[0], found[-1]] if found else [None, None])
        return found, listed["has_more"]

    ids = [item["id"] for item in items]
    assert await page("") == (ids[:4:-1], True)  # the latest 20 first
    assert await page("?order=asc&limit=3") == (ids[:3], True)
    assert await page("?order=asc&limit=100&after=msg_20") == (ids[21:], False)
    assert await page("?order=asc&limit=5&after=msg_19") == (ids[20:], False)
    assert await page("?after=msg_02") == (["msg_01", "msg_00"], False)
    assert await page("?order=asc&after=msg_24") == ([], False)
    for query, param in (
        *(("?limit=0", "limit"), ("?limit=101", "limit"), ("?limit=x", "limit"), ("?order=up", "order")),
        *(("?after=msg_99", "after"), ("?include=x", "include"), ("?include%5B%5D=x", "include")),
    ):
        assert (await house.get(f"{kept}/input_items{query}", 400))["error"]["param"] == param
    child = await house.made(input="more", previous_response_id=kept)
    listed = await house.get(f"{child['id']}/input_items")
    assert [item["content"] for item in listed["data"]] == [[{"type": "input_text", "text": "more"}]]
    await house.get("resp_unknown/input_items", 404)


@contract("RSTORE-015", "RSTORE-016", "D35", "ERR-029", "HTTP-002")
async def test_what_is_not_offered() -> None:
    house = House()
    kept = (await house.made())["id"]
    assert error_of(await post_json(house.app, f"/v1/responses/{kept}/cancel", {}))[:2] == (
        400,
        "background_not_supported",
    )
    assert error_of(await post_json(house.app, "/v1/responses/compact", {}))[:2] == (404, "compaction_not_supported")


@contract("RSTORE-018", "ERR-030")
async def test_a_response_that_is_too_large_to_keep() -> None:
    house = House(script("x" * (1 << 20)), response_store_max_mib=1)
    answer = await house.create()
    code = "response_store_capacity_exceeded"
    assert error_of(answer) == (400, code, "store")
    last = events_of((await house.create(stream=True)).body)[-1]["response"]
    assert (last["status"], last["output"], last["error"]["code"]) == ("failed", [], code)
    await house.made(store=False)


@contract("RSTORE-002", "RSTORE-017")
async def test_flags_bound_the_store() -> None:
    house = House(response_store_max_records=2)
    ids = [(await house.made())["id"] for _ in range(3)]
    assert [(await asgi_call(house.app, "GET", f"/v1/responses/{one}")).status for one in ids] == [404, 200, 200]


@contract("D13", "ROBJ-002")
async def test_a_client_that_leaves_can_ask_for_what_there_was() -> None:
    house = House([*script("Hel", reasoning=["hm"])[:-1], trio.Event()])
    answer = ASGIAnswer()
    body = json.dumps({"model": CARD.id, "input": "Hi", "stream": True}).encode()
    with trio.move_on_after(0.2):
        await asgi_call(house.app, "POST", "/v1/responses", body, answer=answer)
    assert house.host.open_generations == 0
    first = json.loads(answer.body.decode().split("\n")[1].removeprefix("data: "))
    kept = await house.get(first["response"]["id"])
    assert kept["status"] == "cancelled"
    assert [(item["type"], item["status"]) for item in kept["output"]] == [
        ("reasoning", "completed"),
        ("message", "incomplete"),
    ]


@contract("D13")
async def test_a_client_that_leaves_before_anything_leaves_nothing() -> None:
    house = House([trio.Event()])
    for store in (True, False):
        with trio.move_on_after(0.05):
            await house.create(stream=True, store=store)
    assert (house.host.open_generations, len(house.protocol.store)) == (0, 0)


@contract("ROBJ-008", "ROBJ-010")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_limit(stream: bool) -> None:  # RSP-09
    house = House(script("Hel", end=finished(FinishReason.OUTPUT_LIMIT)))
    answer = await house.create(stream=stream, max_output_tokens=1)
    whole = events_of(answer.body)[-1]["response"] if stream else answer.json()
    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (whole["max_output_tokens"], whole["completed_at"]) == (1, None)


@contract("RTOK-001", "RTOK-002", "RTOK-003", "RTOK-004")
async def test_counting() -> None:
    house = House()
    members = {
        "model": CARD.id,
        "instructions": "I",
        "reasoning": {"effort": "low"},
        "tools": TOOLS,
        "tool_choice": "none",
        "text": {"format": {"type": "text"}},
        "truncation": "disabled",
        "preserve_thinking": True,
        "previous_response_id": (await house.made(tools=TOOLS[:0]))["id"],
        "input": [{"type": "function_call_output", "call_id": "call_1", "output": "x"}],
    }
    answer = await post_json(house.app, "/v1/responses/input_tokens", members)
    assert answer.json() == {"object": "response.input_tokens", "input_tokens": 11}
    whole = (await post_json(house.app, "/v1/responses", members)).json()
    assert whole["usage"]["input_tokens"] == 11
    assert house.host.requests[-1] == house.host.requests[-2]
    assert len(house.protocol.store) == 2  # counting stores nothing


async def test_counting_refuses_what_creation_refuses() -> None:
    house = House()
    answer = await post_json(house.app, "/v1/responses/input_tokens", {"model": CARD.id, "input": []})
    assert error_of(answer) == (400, "missing_required_parameter", "input")


async def test_a_probe_costs_no_generation() -> None:  # RSP-04
    house = House()
    assert (await house.create(input=[], max_output_tokens=1)).status == 400
    assert house.host.requests == []
