"""`ninfer chat`: what it shows, what it sends, and how it ends, over a server that plays scripts."""

import io
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
import trio
from rich.console import Console

from ninfer.cli import main
from ninfer.cli.chat import Talk, printable
from ninfer.cli.chat_server import ChatServer, ServerSaid
from ninfer.conversation import EngineUnavailable, FinishReason, InvalidRequest
from ninfer.testing import CARD, FakeHost, Step, finished, running_server, script, until


def lines(*said: str) -> Callable[[], str]:
    """A user who says these lines and leaves."""
    left = list(said)

    def read() -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return read


async def talked(host: FakeHost, *said: str, **members: Any) -> tuple[str, Talk]:
    """What stands on the screen when the user has said all lines."""
    screen = io.StringIO()

    async with running_server(host) as server:

        def talk() -> Talk:
            with ChatServer(f"{server.base_url}/v1/") as chat_server:
                console = Console(file=screen, width=40, highlight=False)
                made = Talk(server=chat_server, console=console, model=CARD.id, **members)
                made.run(lines(*said))
                return made

        made = await trio.to_thread.run_sync(talk)
        return screen.getvalue(), made


async def screen_of(steps: Sequence[Step], *said: str) -> str:
    host = FakeHost(list(steps))
    screen, _ = await talked(host, *said)
    return screen


async def test_a_conversation_grows() -> None:
    host = FakeHost(script("Hel", "lo", reasoning=["h", "m"]))
    screen = io.StringIO()
    async with running_server(host) as server:

        def talk() -> None:
            with ChatServer(server.base_url) as chat_server:
                one = Talk(server=chat_server, console=Console(file=screen), model=CARD.id, system="Be brief.")
                one.run(lines("Hi", "", "  And?  ", "/quit", "never said"))

        await trio.to_thread.run_sync(talk)
    assert screen.getvalue() == "hm\nHello\n" * 2
    first, second = host.requests
    assert [(turn.role, turn.text) for turn in first.turns] == [("system", "Be brief."), ("user", "Hi")]
    assert [(turn.role, turn.text) for turn in second.turns[2:]] == [("assistant", "Hello"), ("user", "And?")]
    assert second.turns[2].reasoning == "hm"


async def test_commands() -> None:
    host = FakeHost()
    _, talk = await talked(host, "Hi", "/system  Be kind. ", "/reset", "Ho", "/system", "Hu", "/bogus")
    assert [[turn.text for turn in request.turns] for request in host.requests] == [
        ["Hi"],
        ["Be kind.", "Ho"],
        ["Ho", "Hello", "Hu"],
    ]
    assert len(talk.turns) == 4


async def test_fields_go_with_every_request() -> None:
    host = FakeHost()
    await talked(host, "Hi", "Ho", fields={"enable_thinking": False})
    assert [request.thinking.enabled for request in host.requests] == [False, False]


@pytest.mark.parametrize(
    ("steps", "on_enter", "shown"),
    [
        ([], [InvalidRequest("messages: too sad")], "messages: too sad. This turn is left out."),
        (script("Hel", end=EngineUnavailable("gone")), [], "Hel\ngone. This turn is left out."),
        (script("Hel", end=finished(FinishReason.OUTPUT_LIMIT)), [], "Hel\n(the answer was cut at its output limit)"),
    ],
    ids=["refused", "broken", "cut"],
)
async def test_what_goes_wrong_is_said(steps: Sequence[Step], on_enter: Sequence[Step], shown: str) -> None:
    host = FakeHost(list(steps), on_enter=on_enter)
    screen = io.StringIO()
    async with running_server(host) as server:

        def talk() -> int:
            with ChatServer(server.base_url) as chat_server:
                one = Talk(server=chat_server, console=Console(file=screen, width=99), model=CARD.id)
                one.run(lines("Hi"))
                return len(one.turns)

        kept = await trio.to_thread.run_sync(talk)
    assert screen.getvalue() == f"{shown}\n"
    assert kept == (2 if "cut" in shown else 0)


async def test_an_answer_that_is_stopped_is_cancelled_and_left_out() -> None:
    host = FakeHost([*script("Hel")[:-1], trio.Event()])
    screen = io.StringIO()

    class Impatient(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*objects, **options)
            if objects == ("Hel",):
                raise KeyboardInterrupt

    async with running_server(host) as server:
        with ExitStack() as stack:
            chat_server = stack.enter_context(ChatServer(server.base_url))
            talk = Talk(server=chat_server, console=Impatient(file=screen), model=CARD.id)
            assert await trio.to_thread.run_sync(talk.take, "Hi")
            await until(lambda: host.left == 1)
    assert screen.getvalue() == "Hel\nStopped. This turn is left out.\n"
    assert talk.turns == []


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\x07b", "a\rb", "a\x9bb", "a\x7fb"])
async def test_a_terminal_gets_no_commands(text: str) -> None:
    assert printable("ä\n\t[b]☂") == "ä\n\t[b]☂"
    shown = printable(text)
    assert shown[0] + shown[-1] == "ab"
    assert "\N{REPLACEMENT CHARACTER}" in shown
    assert not [c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160]


async def test_markup_is_text() -> None:
    assert await screen_of(script("[red]", "x[/red]"), "Hi") == "[red]x[/red]\n"


def server_that(answer: Callable[[httpx.Request], httpx.Response]) -> ChatServer:
    return ChatServer("http://test", transport=httpx.MockTransport(answer))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.Response(500, text="<html>"), "500 Internal Server Error"),
        (httpx.Response(200, text='data: {"choices":[]}\n\n'), "the answer broke off"),
        (httpx.Response(200, text="data: {\n\n"), "what answers there is no such server"),
        (httpx.Response(200, text='data: {"some":"thing"}\n\n'), "what answers there is no such server"),
    ],
    ids=["html", "early end", "no json", "other json"],
)
def test_a_foreign_server_is_no_crash(answer: httpx.Response, says: str) -> None:
    with server_that(lambda _: answer) as server, pytest.raises(ServerSaid, match=says):
        list(server.answer("m", []))


def test_the_key_goes_along() -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(200, text=json.dumps({"data": [{"id": "m"}]}))

    with ChatServer("http://test/v1", api_key="k", transport=httpx.MockTransport(answer)) as server:
        assert server.models() == ["m"]
    assert seen == ["Bearer k"]


async def test_the_command() -> None:
    async with running_server(FakeHost()) as server:
        command = [sys.executable, "-m", "ninfer", "chat", "--url", server.base_url]
        ended = await trio.run_process(command, stdin=b"Hi\n/quit\n", capture_stdout=True, capture_stderr=True)
    assert (ended.stdout, ended.stderr) == (b"Hello\n", b"")


async def test_a_line_that_is_no_utf8_is_left_out() -> None:
    """It was a traceback, and in a POSIX locale a request that no server can read."""
    host = FakeHost()
    async with running_server(host) as server:
        command = [sys.executable, "-m", "ninfer", "chat", "--url", server.base_url, "--system", "Be brief."]
        ended = await trio.run_process(command, stdin=b"/system \xff\nH\xff\nHi\n", capture_stdout=True)
    note = b"That line is not UTF-8, and is left out.\n"
    assert ended.stdout == note + note + b"Hello\n"
    (request,) = host.requests
    assert [turn.text for turn in request.turns] == ["Be brief.", "Hi"]


async def test_a_model_that_the_server_lacks_is_one_line() -> None:
    async with running_server(FakeHost()) as server:
        command = [sys.executable, "-m", "ninfer", "chat", "--url", server.base_url, "--model", "other"]
        ended = await trio.run_process(command, stdin=b"Hi\n", capture_stdout=True, capture_stderr=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.decode() == f"ninfer: --model other: {server.base_url} has {CARD.id}\n"


@pytest.mark.parametrize("options", [(), ("--model", "m")])
def test_no_server_is_one_line(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["chat", "--url", "http://127.0.0.1:9", *options])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ninfer: http://127.0.0.1:9: no server answers (")
    assert line.endswith("); start one with `python -m ninfer serve`, or say with --url where it is")
