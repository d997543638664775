"""One record for each request, refused ones included, with nothing in it that a client wrote but method and path."""

import logging
import re

import pytest
import trio

from ninfer.conversation import Overloaded
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.server.app import create_app
from ninfer.server.settings import ServerSettings
from ninfer.testing import ASGIAnswer, FakeHost, asgi_call, post_json

CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ninfer.request")


def records(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "ninfer.request"]


def body(**members: object) -> dict[str, object]:
    return {"model": "lab/tiny model", "messages": [{"role": "user", "content": "a secret"}], **members}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    host = FakeHost()
    answer = await post_json(create_app(host, [OpenAIChat(host)]), CHAT, body(stream=stream))
    assert answer.status == 200
    (line,) = records(caplog)
    expected = rf"POST {CHAT}: 200, {answer.headers['x-request-id']} openai_chat\S*.*, \d+\.\d{{3}} s"
    assert re.fullmatch(expected, line)


@pytest.mark.parametrize(
    ("path", "given", "status"),
    [
        (CHAT, body(model="my secret"), 404),
        (CHAT, body(secret_field=[], messages="secret"), 400),
        ("/v1/secret-free", body(), 404),
    ],
)
async def test_a_refusal(path: str, given: object, status: int, caplog: pytest.LogCaptureFixture) -> None:
    host = FakeHost()
    answer = await post_json(create_app(host, [OpenAIChat(host)]), path, given)
    assert answer.status == status
    (line,) = records(caplog)
    assert line.startswith(f"POST {path}: {status}, req_")
    assert "secret" not in line.replace(path, "")


async def test_refusals_before_any_route(caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(FakeHost(), [], settings=ServerSettings(api_key="the key"))
    await asgi_call(app, "GET", "/v1/models", headers=[("authorization", "Bearer another key")])
    (line,) = records(caplog)
    assert line.startswith("GET /v1/models: 401, req_")
    assert "key" not in line


async def test_no_place(caplog: pytest.LogCaptureFixture) -> None:
    host = FakeHost(on_enter=[Overloaded("every place is taken")])
    await post_json(create_app(host, [OpenAIChat(host)]), CHAT, body())
    (line,) = records(caplog)
    assert line.startswith(f"POST {CHAT}: 429, req_")


async def test_a_path_is_one_line_and_not_longer(caplog: pytest.LogCaptureFixture) -> None:
    await asgi_call(create_app(FakeHost(), []), "GET", "/\x1b[31m\n\x7f\u2028é" + "x" * 300)
    (line,) = records(caplog)
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 300


async def test_a_client_that_leaves(caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock) -> None:
    host = FakeHost()
    app = create_app(host, [OpenAIChat(host)])
    with trio.move_on_after(1):
        await asgi_call(app, "POST", CHAT, b"{", unfinished=True, answer=ASGIAnswer())
    (line,) = records(caplog)
    assert re.fullmatch(rf"POST {CHAT}: no answer, the client left, req_\w+ openai_chat, 1\.000 s", line)
