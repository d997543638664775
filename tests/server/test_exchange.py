"""The way of a call through the application: heads, keep-alive, errors before and after the head, stops."""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from ninfer.conversation import (
    Event,
    GenerationRequest,
    InternalError,
    InvalidRequest,
    Overloaded,
    QueueTimeout,
    RequestError,
)
from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_errors import openai_error, openai_stream_error
from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.protocols.plugin import Call, Route, WireError
from ninfer.server.app import create_app
from ninfer.server.running import RunningCalls
from ninfer.testing import CARD, ASGIAnswer, FakeHost, Step, asgi_call, post_json, script, sse_data

KEEP_ALIVE = b": keep-alive\n\n"
BODY = {"model": CARD.id, "messages": [{"role": "user", "content": "Hi"}]}
STREAM = {**BODY, "stream": True}
CHAT = "/v1/chat/completions"


async def chat(steps: Sequence[Step], body: object = STREAM, on_enter: Sequence[Step] = ()) -> ASGIAnswer:
    host = FakeHost(steps=steps, on_enter=on_enter)
    answer = await post_json(create_app(host, [OpenAIChat(host)]), CHAT, body)
    assert host.open_generations == 0
    assert answer.complete
    return answer


@attrs.frozen
class OneHandler:
    """A protocol of one route with a given handler."""

    handler: Callable[[Call], Awaitable[None]]
    name: str = "one"
    request_id_header: str = "request-id"
    method: str = "POST"
    path: str = "/v1/things/{id:path}"

    def routes(self) -> Sequence[Route]:
        return (Route(self.method, self.path, self.handler),)

    def error(self, error: RequestError, request_id: str) -> WireError:
        return WireError(status=openai_error(error).status, body={"oops": error.code}, headers={"x-own": request_id})

    def stream_error(self, error: RequestError, request_id: str) -> bytes:
        return openai_stream_error(error)


async def handled(
    handler: Callable[[Call], Awaitable[None]], path: str = "/v1/things/a", body: bytes = b"{}"
) -> ASGIAnswer:
    return await asgi_call(create_app(FakeHost(), [OneHandler(handler)]), "POST", path, body)


# The head of a stream and the keep-alive comment (D1)


@pytest.mark.contract("HTTP-011", "D1")
async def test_comments_before_and_between_events(autojump_clock: trio.testing.MockClock) -> None:
    begin_s = trio.current_time()
    started, *rest = script("Hello", "!")
    answer = await chat([12, started, 7, *rest])
    comments = [round(at - begin_s) for at, part in answer.parts if part == KEEP_ALIVE]
    assert comments == [5, 10, 17]
    assert round(answer.head_at_s - begin_s) == 5
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")


@pytest.mark.contract("HTTP-011", "D1")
async def test_the_head_leaves_with_the_first_event(autojump_clock: trio.testing.MockClock) -> None:
    begin_s = trio.current_time()
    answer = await chat([2, *script("Hello")])
    assert round(answer.head_at_s - begin_s) == 2
    assert KEEP_ALIVE not in answer.body


@pytest.mark.contract("HTTP-011")
async def test_comments_change_nothing(autojump_clock: trio.testing.MockClock) -> None:
    def events(answer: ASGIAnswer) -> list[object]:
        found = [json.loads(data) for data in sse_data(answer.body)[:-1]]
        return [(chunk["choices"], chunk["usage"]) for chunk in found]

    body = {**STREAM, "stream_options": {"include_usage": True}}
    slow = [step for event in script("Hel", "lo", reasoning=["hm"]) for step in (6, event)]
    assert events(await chat(slow, body)) == events(await chat(script("Hel", "lo", reasoning=["hm"]), body))


@pytest.mark.contract("D1")
@pytest.mark.parametrize("wait_s", [0, 4.9])
@pytest.mark.parametrize(
    ("error", "status"), [(Overloaded("full"), 429), (QueueTimeout("late"), 503), (InvalidRequest("bad"), 400)]
)
@pytest.mark.parametrize("where", ["entering", "iterating"])
async def test_a_failure_before_the_head_is_a_plain_error(
    wait_s: float, error: RequestError, status: int, where: str, autojump_clock: trio.testing.MockClock
) -> None:
    steps: list[Step] = [wait_s, error]
    answer = await (chat([], on_enter=steps) if where == "entering" else chat(steps))
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["code"] == error.code


@pytest.mark.contract("D1", "CHAT-042")
async def test_a_failure_after_a_comment_is_a_stream_error(autojump_clock: trio.testing.MockClock) -> None:
    answer = await chat([5.1, QueueTimeout("too late")])
    assert answer.status == 200
    (error,) = [json.loads(data) for data in sse_data(answer.body)]
    assert error["error"] == {
        "message": "too late", "type": "server_error", "param": None, "code": "request_queue_timeout",
    }  # fmt: skip


@pytest.mark.contract("CHAT-042", "D1")
async def test_a_failure_after_the_first_event_ends_the_stream() -> None:
    started, delta, _ = script("Hello")
    body = {**STREAM, "stream_options": {"include_usage": True}}
    answer = await chat([started, delta, InternalError("broken")], body)
    *chunks, error = [json.loads(data) for data in sse_data(answer.body)]
    assert error == {"error": {"message": "broken", "type": "server_error", "param": None, "code": "internal_error"}}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None]
    assert b"[DONE]" not in answer.body
    assert b"event:" not in answer.body


@pytest.mark.contract("CHAT-038")
async def test_done_comes_once_and_last() -> None:
    answer = await chat(script("Hello"))
    assert answer.body.count(b"[DONE]") == 1
    assert answer.body.endswith(b"data: [DONE]\n\n")


# What a handler may do wrong


@pytest.mark.contract("ERR-006")
async def test_a_fault_is_an_internal_error_in_the_protocols_words(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(call: Call) -> None:
        raise ValueError("secret detail")

    with caplog.at_level(logging.ERROR):
        answer = await handled(fail)
    assert (answer.status, answer.json()) == (500, {"oops": "internal_error"})
    assert answer.headers["x-own"] == answer.headers["request-id"]
    assert "secret detail" in caplog.text
    assert answer.headers["request-id"] in caplog.text
    assert b"secret" not in answer.body


async def test_an_error_wrapped_by_a_nursery_is_that_error() -> None:
    async def fail(call: Call) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise Overloaded("full")

    assert (await handled(fail)).json() == {"oops": "server_overloaded"}


async def test_no_answer_is_a_fault() -> None:
    async def silent(call: Call) -> None:
        await trio.lowlevel.checkpoint()

    async def empty_stream(call: Call) -> None:
        async with call.stream():
            pass

    assert (await handled(silent)).status == 500
    assert (await handled(empty_stream)).status == 500


async def test_a_call_is_answered_once() -> None:
    async def twice(call: Call) -> None:
        await call.reply({"a": 1})
        await call.reply({"a": 2})

    async def both(call: Call) -> None:
        await call.reply({"a": 1})
        async with call.stream() as sink:
            await sink.send(b"data: x\n\n")

    assert (await handled(twice)).status == 500
    assert (await handled(both)).status == 500


async def test_a_fault_after_the_head_ends_the_stream_with_an_error() -> None:
    async def fail(call: Call) -> None:
        async with call.stream() as sink:
            await sink.send(b"data: 1\n\n")
            raise ZeroDivisionError

    answer = await handled(fail)
    assert answer.status == 200
    assert answer.complete
    assert json.loads(sse_data(answer.body)[-1])["error"]["code"] == "internal_error"


async def test_what_a_handler_sees() -> None:
    seen: dict[str, object] = {}

    async def look(call: Call) -> None:
        seen.update(
            id=call.path_args["id"],
            query=dict(call.query),
            body=await call.decoded(lambda body: body),
            own=call.request_id,
        )
        assert call.headers["X-Odd"] == call.headers["x-odd"] == "1"
        assert "absent" not in call.headers
        await call.reply({"ok": True}, status=201)

    app = create_app(FakeHost(), [OneHandler(look)])
    answer = await asgi_call(app, "POST", "/v1/things/a/b?x=1&x=2", b'{"q": 1}', headers=[("X-Odd", "1")])
    assert (answer.status, answer.json()) == (201, {"ok": True})
    assert seen == {"id": "a/b", "query": {"x": "2"}, "body": {"q": 1}, "own": answer.headers["request-id"]}


async def test_bodies_that_are_compressed_are_refused() -> None:
    async def read(call: Call) -> None:
        await call.decoded(lambda body: body)

    app = create_app(FakeHost(), [OneHandler(read)])
    answer = await asgi_call(app, "POST", "/v1/things/a", b"{}", headers=[("content-encoding", "gzip")])
    assert (answer.status, answer.json()) == (400, {"oops": "unsupported_content_encoding"})


# Stops


@pytest.mark.contract("ERR-008")
@pytest.mark.parametrize("body", [BODY, STREAM], ids=["aggregate", "stream"])
async def test_a_stop_before_the_head_is_503(body: object) -> None:
    host = FakeHost(steps=[trio.Event()])
    running = RunningCalls()
    app = create_app(host, [OpenAIChat(host)], running=running)
    answer = ASGIAnswer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_call_into, app, body, answer)
        await trio.testing.wait_all_tasks_blocked()
        assert (len(running), host.open_generations) == (1, 1)
        running.stop()
    assert (answer.status, answer.json()["error"]["code"]) == (503, "service_unavailable")
    assert (len(running), host.open_generations) == (0, 0)


@pytest.mark.contract("CHAT-042")
async def test_a_stop_in_a_stream_is_its_error() -> None:
    host = FakeHost(steps=[*script("Hello")[:-1], trio.Event()])
    running = RunningCalls()
    app = create_app(host, [OpenAIChat(host)], running=running)
    answer = ASGIAnswer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_call_into, app, STREAM, answer)
        await trio.testing.wait_all_tasks_blocked()
        running.stop()
    assert answer.complete
    assert json.loads(sse_data(answer.body)[-1])["error"]["code"] == "service_unavailable"
    assert host.open_generations == 0


async def test_a_call_after_the_stop_is_refused() -> None:
    host = FakeHost()
    running = RunningCalls()
    running.stop()
    answer = await post_json(create_app(host, [OpenAIChat(host)], running=running), CHAT, BODY)
    assert answer.status == 503
    assert host.requests == []


async def _call_into(app: object, body: object, answer: ASGIAnswer) -> None:
    await asgi_call(app, "POST", CHAT, json.dumps(body).encode(), answer=answer)


# A client that leaves while its request is refused


class RefusingHost(FakeHost):
    """Refuses a request at the moment at which its client leaves."""

    @asynccontextmanager
    async def generate(self, request: GenerationRequest) -> AsyncIterator[AsyncIterator[Event]]:
        self.requests.append(request)
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise Overloaded("no place") from None
        async with super().generate(request) as events:
            yield events


async def beside_another_task(call: Call) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        async with RefusingHost().generate(GenerationRequest(turns=())):
            pass


@pytest.mark.contract("HTTP-016")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, BODY),
        ("/v1/responses", {"model": CARD.id, "input": "Hi"}),
        ("/v1/messages", {**BODY, "max_tokens": 5}),
        ("/v1/things/a", {}),
    ],
)
async def test_a_refusal_that_nobody_waits_for_is_no_fault(
    path: str, body: dict[str, object], stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    host = RefusingHost()
    protocols = [OpenAIChat(host), OpenAIResponses(host), AnthropicMessages(host), OneHandler(beside_another_task)]
    app = create_app(host, protocols)
    with trio.move_on_after(0.05) as client:
        await asgi_call(app, "POST", path, json.dumps({**body, "stream": stream}).encode())
    assert client.cancelled_caught
    assert not caplog.records


async def test_a_fault_that_nobody_waits_for_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(call: Call) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ZeroDivisionError

    with trio.move_on_after(0.05) as client:
        await handled(breaks)
    assert client.cancelled_caught
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "the protocol one failed" in record.message
