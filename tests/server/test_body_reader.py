"""Bodies on threads: small ones are decoded in place, large ones keep no smaller waiting, and few are read at once."""

import threading
from collections.abc import Callable

import attrs
import pytest
import trio

from ninfer.conversation import InvalidRequest
from ninfer.protocols.plugin import Call, JSONValue
from ninfer.server.app import create_app
from ninfer.server.body_reader import LARGE_BYTES, THREAD_BYTES, THREADS, WholeBody
from ninfer.testing import ASGIAnswer, FakeHost, asgi_call
from tests.server.test_exchange import OneHandler

SMALL = b"[]"
BETWEEN = b"[" + b" " * THREAD_BYTES + b"]"
LARGE = b"[" + b" " * LARGE_BYTES + b"]"


def app_of(decode: Callable[[JSONValue], object]) -> object:
    async def handler(call: Call) -> None:
        await call.reply({"decoded": await call.decoded(decode)})

    return create_app(FakeHost(), [OneHandler(handler)])


async def post(app: object, body: bytes) -> ASGIAnswer:
    return await asgi_call(app, "POST", "/v1/things/a", body)


@pytest.mark.parametrize(("body", "in_place"), [(SMALL, True), (BETWEEN, False), (LARGE, False)])
async def test_where_a_body_is_decoded(body: bytes, in_place: bool) -> None:
    here = threading.get_ident()
    answer = await post(app_of(lambda value: [value, threading.get_ident() == here]), body)
    assert answer.json() == {"decoded": [[], in_place]}


@pytest.mark.parametrize("body", [SMALL, BETWEEN, LARGE])
async def test_a_refusal_is_the_same_from_everywhere(body: bytes) -> None:
    def refuse(value: JSONValue) -> object:
        raise InvalidRequest("no", param="a")

    answer = await post(app_of(refuse), body)
    assert (answer.status, answer.json()) == (400, {"oops": "invalid_value"})


@attrs.define
class Gate:
    """A decoder that comes back when it is told to."""

    inside: int = 0
    opened: threading.Event = attrs.field(factory=threading.Event)

    def decode(self, value: JSONValue) -> object:
        self.inside += 1
        self.opened.wait(60)
        return "late"


@pytest.mark.contract("EXEC-014", "EXEC-017")
async def test_large_bodies_keep_nobody_else_waiting() -> None:
    gate = Gate()
    app = app_of(lambda value: gate.decode(value) if value == [] else "at once")
    answers: list[ASGIAnswer] = []

    async def ask(body: bytes) -> None:
        answers.append(await post(app, body))

    async with trio.open_nursery() as nursery:
        for _ in range(THREADS + 2):
            nursery.start_soon(ask, LARGE)
        with trio.fail_after(60):
            while gate.inside < THREADS:  # noqa: ASYNC110 - threads have nothing to wake us with
                await trio.sleep(0.001)
            for other in (b"{}", BETWEEN.replace(b"[ ", b"[1")):
                assert (await post(app, other)).json() == {"decoded": "at once"}
        assert (gate.inside, answers) == (THREADS, [])
        gate.opened.set()
    assert [answer.json() for answer in answers] == [{"decoded": "late"}] * (THREADS + 2)


async def test_a_client_that_leaves_does_not_wait_for_its_body() -> None:
    gate, answers = Gate(), []
    app = app_of(gate.decode)

    async def ask() -> None:
        answers.append(await post(app, LARGE))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        with trio.fail_after(60):
            while not gate.inside:  # noqa: ASYNC110 - threads have nothing to wake us with
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert (gate.inside, answers) == (1, [])  # the thread is still at it
    gate.opened.set()


async def test_a_body_is_handed_out_without_a_copy() -> None:
    body = WholeBody(None, 100)
    body.append(b"a")
    body.append(b"b")
    body.set_complete()
    whole = await body
    assert whole is await body
    body.clear()
    assert (whole, await body) == (b"ab", b"")
