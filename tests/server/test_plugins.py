"""What a protocol of somebody else may do with its routes: texts, streams of its own form, and everything wrong."""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from ninfer.conversation import InvalidRequest, NotFound, Overloaded, RequestError
from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.plugin import EVENT_STREAM, NDJSON, Call, Route, StreamForm, WireError
from ninfer.server.app import create_app
from ninfer.testing import ASGIAnswer, FakeHost, asgi_call

Handler = Callable[[Call], Awaitable[None]]


def write_error(error: RequestError) -> WireError:
    """An envelope that no other protocol has."""
    return WireError(status=404 if isinstance(error, NotFound) else 400, body={"oops": error.code})


@attrs.frozen
class Odd:
    """A protocol of one route, every part of which a test may set."""

    handler: Handler
    paths: Sequence[str] = ("/api/odd",)
    streams: StreamForm = EVENT_STREAM
    write: Callable[[RequestError], Any] = write_error
    write_last: Callable[[RequestError], Any] = lambda error: b"oops\n"

    name = "odd"
    request_id_header = "odd-id"

    def routes(self) -> Sequence[Route]:
        """One route."""
        return [Route("POST", path, self.handler, streams=self.streams) for path in self.paths]

    def error(self, error: RequestError, request_id: str) -> WireError:
        """What the test says."""
        return self.write(error)  # type: ignore[no-any-return]

    def stream_error(self, error: RequestError, request_id: str) -> bytes:
        """What the test says."""
        return self.write_last(error)  # type: ignore[no-any-return]


async def called(protocol: Odd, path: str = "/api/odd", method: str = "POST") -> ASGIAnswer:
    return await asgi_call(create_app(FakeHost(), [protocol]), method, path, b"{}")


# Whole answers


@pytest.mark.parametrize(
    ("reply", "content", "kind"),
    [
        ({"body": {"a": "ü"}}, '{"a":"ü"}', "application/json"),
        ({"body": "Olá"}, "Olá", "text/plain; charset=utf-8"),
        ({"body": "a,b\n", "content_type": "text/csv"}, "a,b\n", "text/csv"),
        ({"body": {"a": 1}, "content_type": "application/problem+json"}, '{"a":1}', "application/problem+json"),
        ({"body": "", "status": 204}, "", "text/plain; charset=utf-8"),
    ],
)
async def test_replies(reply: dict[str, Any], content: str, kind: str) -> None:
    async def answer(call: Call) -> None:
        await call.reply(**reply)

    got = await called(Odd(answer))
    assert (got.status, got.body.decode(), got.headers["content-type"]) == (reply.get("status", 200), content, kind)
    assert got.headers["odd-id"]


async def test_an_error_may_be_a_text() -> None:
    async def refuse(call: Call) -> None:
        raise NotFound("there is none")

    got = await called(Odd(refuse, write=lambda error: WireError(status=404, body=error.message)))
    assert (got.status, got.body, got.headers["content-type"]) == (404, b"there is none", "text/plain; charset=utf-8")


# Streams of another form than event streams


def saying(*steps: bytes | float | Exception) -> Handler:
    """A handler that streams lines, with silences, and perhaps fails."""

    async def handle(call: Call) -> None:
        async with call.stream() as sink:
            for step in steps:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, bytes):
                    await sink.send(step)
                else:
                    await trio.sleep(step)

    return handle


async def test_nothing_is_sent_in_the_silences_of_a_stream_without_keep_alives(
    autojump_clock: trio.testing.MockClock,
) -> None:
    got = await called(Odd(saying(12.0, b'{"a":1}\n', 130.0, b'{"a":2}\n'), streams=NDJSON))
    assert [json.loads(line) for line in got.body.splitlines()] == [{"a": 1}, {"a": 2}]
    assert (got.status, got.headers["content-type"], got.complete) == (200, "application/x-ndjson", True)


async def test_the_head_of_such_a_stream_waits_for_its_first_frame(autojump_clock: trio.testing.MockClock) -> None:
    begin_s = trio.current_time()
    got = await called(Odd(saying(60.0, b"{}\n"), streams=NDJSON))
    assert round(got.head_at_s - begin_s) == 60
    late = await called(Odd(saying(60.0, Overloaded("full")), streams=NDJSON))
    assert (late.status, late.json()) == (400, {"oops": "server_overloaded"})


async def test_a_stream_has_keep_alives_of_its_own(autojump_clock: trio.testing.MockClock) -> None:
    form = StreamForm(content_type="text/odd", keep_alive=b"\n")
    got = await called(Odd(saying(6.0, b"a\n", 11.0, b"b\n"), streams=form))
    assert (got.body, got.headers["content-type"]) == (b"\na\n\n\nb\n", "text/odd")


async def test_a_stream_that_fails_ends_in_its_own_words() -> None:
    got = await called(Odd(saying(b"a\n", InvalidRequest("no")), streams=NDJSON))
    assert (got.body, got.complete) == (b"a\noops\n", True)


async def test_an_empty_frame_says_nothing_and_ends_nothing() -> None:
    got = await called(Odd(saying(b"", b"a\n", b"", b"b\n"), streams=NDJSON))
    assert got.body == b"a\nb\n"


def test_a_keep_alive_is_something() -> None:
    with pytest.raises(ValueError, match="keep_alive"):
        StreamForm(content_type="text/odd", keep_alive=b"")


# Paths that nobody serves


@pytest.mark.parametrize(
    ("path", "envelope"),
    [
        ("/api/odd/more", "odd"),
        ("/api/other", "odd"),
        ("/api", "odd"),
        ("/api/", "odd"),
        ("/v1/odd/x", "odd"),
        ("/v1/v1/odd/x", "odd"),
        ("/v1/chat", "openai"),
        ("/v1/messages/nothing", "anthropic"),
        ("/v1/nothing", "openai"),
        ("/apis", "openai"),
        ("/", "openai"),
        ("/health/x", "openai"),
    ],
)
async def test_unknown_paths_are_answered_by_whom_they_are_nearest_to(path: str, envelope: str) -> None:
    odd = Odd(saying(), paths=("/api/odd", "/api/{any}/two", "/v1/odd"))
    app = create_app(FakeHost(), [odd, OpenAIChat(FakeHost()), AnthropicMessages(FakeHost())])
    got = await asgi_call(app, "GET", path)
    assert got.status == 404
    body = got.json()
    found = "odd" if "oops" in body else "anthropic" if body.get("type") == "error" else "openai"
    assert found == envelope
    assert got.headers[{"odd": "odd-id", "anthropic": "request-id", "openai": "x-request-id"}[envelope]]


async def test_a_wrong_method_is_answered_in_the_protocols_words() -> None:
    got = await called(Odd(saying()), method="DELETE")
    assert (got.status, got.json()) == (405, {"oops": "method_not_allowed"})
    assert set(got.headers["allow"].split(", ")) == {"OPTIONS", "POST"}


# What a broken protocol does to a request: one line that names it, and an answer


def does(act: Callable[[Call], Any]) -> Handler:
    """A handler that does one thing."""

    async def handle(call: Call) -> None:
        await trio.lowlevel.checkpoint()
        found = act(call)
        if found is not None:
            await found

    return handle


def fails(error: BaseException) -> Callable[..., Any]:
    """Raises it, whatever it is called with."""

    def fail(*args: object) -> Any:
        raise error

    return fail


async def twice(call: Call) -> None:
    """Answer twice."""
    await call.reply({})
    await call.reply({})


def sends(frame: Any) -> Handler:
    """Streams one frame."""

    async def handle(call: Call) -> None:
        async with call.stream() as sink:
            await sink.send(frame)

    return handle


def not_awaited(call: Call) -> None:
    """A handler that is no coroutine."""


BROKEN: list[tuple[str, Odd, str]] = [
    ("raises", Odd(does(fails(KeyError("x")))), "failed: KeyError: 'x' (test_plugins.py:"),
    ("raises two lines", Odd(does(fails(ValueError("a\nb")))), "failed: ValueError: a b (test_plugins.py:"),
    ("exits", Odd(does(fails(SystemExit(3)))), "failed: SystemExit: 3"),
    ("raises in decode", Odd(does(lambda call: call.decoded(fails(TypeError("no"))))), "failed: TypeError: no"),
    ("is not async", Odd(not_awaited), "failed: TypeError: object NoneType can't be used"),  # type: ignore[arg-type]
    ("answers twice", Odd(twice), "failed: RuntimeError: a call is answered once"),
    ("does not answer", Odd(does(lambda call: None)), "ended without an answer"),
    ("replies a list", Odd(does(lambda call: call.reply([]))), "failed: TypeError: the body is a list instead of"),  # type: ignore[arg-type]
    ("replies a set", Odd(does(lambda call: call.reply({"a": {1}}))), "set is not JSON serializable"),
    ("replies NaN", Odd(does(lambda call: call.reply({"a": float("nan")}))), "Out of range float"),
    ("replies half a character", Odd(does(lambda call: call.reply("\ud800"))), "surrogates not allowed"),
    ("replies 1000", Odd(does(lambda call: call.reply({}, status=1000))), "the status is 1000 instead of a number"),
    ("replies 204 and a body", Odd(does(lambda call: call.reply({}, status=204))), "status 204 has no body"),
    ("replies a bad header", Odd(does(lambda call: call.reply({}, headers={"a b": ""}))), "'a b': '' is no header"),
    ("splits a header", Odd(does(lambda call: call.reply({}, headers={"a": "b\r\nc: d"}))), r"'b\r\nc: d' is no"),
    ("splits its type", Odd(does(lambda call: call.reply("", content_type="a\r\nb"))), r"the content type is 'a\r\nb'"),
    ("sends a text", Odd(sends("data: x\n\n")), "failed: TypeError: a frame is bytes, not str"),
    ("sends nothing", Odd(sends(b"")), "ended without an answer"),
    (
        "streams with a bad header",
        Odd(does(lambda call: call.stream(headers={"a": "\n"}).__aenter__())),
        r"'a': '\n' is no header",
    ),
]


def complaints(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """All records but the one that every request has."""
    return [record for record in caplog.records if record.name != "ninfer.request"]


@pytest.mark.parametrize(("odd", "line"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
async def test_a_broken_handler_ends_its_request_with_one_line(
    odd: Odd, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd = attrs.evolve(odd, write=lambda error: WireError(status=500, body={"oops": error.code}))
    with caplog.at_level(logging.INFO):
        got = await called(odd)
    assert (got.status, got.json(), got.complete) == (500, {"oops": "internal_error"}, True)
    (record,) = complaints(caplog)
    text = record.getMessage()
    assert record.levelno == logging.ERROR
    assert record.exc_info is None
    assert "\n" not in text
    assert text.startswith(f"request {got.headers['odd-id']}: the protocol odd ")
    assert line in text


@pytest.mark.parametrize(
    ("write", "line"),
    [
        (fails(KeyError("x")), "is broken: error() failed for NotFound: KeyError: 'x' (test_plugins.py:"),
        (fails(SystemExit(1)), "is broken: error() failed for NotFound: SystemExit: 1"),
        (
            lambda error: {"oops": 1},
            "error() failed for NotFound: TypeError: it returned a dict instead of a WireError",
        ),
        (lambda error: WireError(status=200, body={}), "the status 200 is not an error's"),
        (lambda error: WireError(status=404, body={"a": fails}), "is not JSON serializable"),
    ],
)
async def test_an_error_that_cannot_be_written_goes_out_in_openais_words(
    write: Callable[[RequestError], Any], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd = Odd(does(fails(NotFound("there is none"))), write=lambda error: write_error(error))
    app = create_app(FakeHost(), [odd])
    object.__setattr__(odd, "write", write)  # it works when the server starts, and breaks later
    for path, code in (("/api/odd", "not_found"), ("/api/other", "not_found")):
        caplog.clear()
        got = await asgi_call(app, "POST", path, b"{}")
        assert (got.status, got.json()["error"]["code"]) == (404, code)
        (record,) = complaints(caplog)
        assert record.getMessage().startswith(f"request {got.headers['odd-id']}: the protocol odd is broken: ")
        assert line in record.getMessage()
        assert record.exc_info is None


@pytest.mark.parametrize(
    ("streams", "last"),
    [
        (EVENT_STREAM, b'data: {"error":{"message":"no","type":"invalid_request_error","param":null,'
                       b'"code":"invalid_value"}}\n\n'),
        (NDJSON, b""),
    ],
    ids=["event stream", "lines"],
)  # fmt: skip
@pytest.mark.parametrize("write", [fails(KeyError("x")), lambda error: "text"], ids=["raises", "text"])
async def test_a_stream_error_that_cannot_be_written(
    streams: StreamForm, last: bytes, write: Callable[[RequestError], Any], caplog: pytest.LogCaptureFixture
) -> None:
    got = await called(Odd(saying(b"a\n", InvalidRequest("no")), streams=streams, write_last=write))
    assert (got.body, got.complete) == (b"a\n" + last, True)
    (record,) = complaints(caplog)
    assert "the protocol odd is broken: stream_error() failed for InvalidRequest: " in record.getMessage()


async def test_where_a_handler_failed_is_told_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "ninfer"):
        await called(Odd(does(fails(KeyError("x")))))
    assert [record.exc_info is not None for record in complaints(caplog)] == [False, True]
