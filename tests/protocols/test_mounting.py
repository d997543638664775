"""Protocols that do not keep the interface: each ends the start with one line that names it."""

from collections.abc import Callable
from datetime import datetime
from importlib.metadata import EntryPoint
from typing import Any

import attrs
import pytest

from ninfer.conversation import InternalError, RequestError
from ninfer.protocols.mounting import ERROR_KINDS, BrokenProtocol, described, routes_of
from ninfer.protocols.openai_errors import openai_error, openai_stream_error
from ninfer.protocols.plugin import NDJSON, Call, Route, WireError
from ninfer.protocols.registry import ProtocolLoadError, load_protocols
from ninfer.testing import FakeHost

GROUP = "ninfer.protocols"


class Sound:
    """A protocol that keeps the interface; the broken ones below each change one thing."""

    name = "odd"
    request_id_header = "x-request-id"

    def __init__(self, host: object) -> None:
        self.host = host

    def routes(self) -> Any:
        """One route."""
        return (Route("POST", "/v1/odd", self.handle),)

    async def handle(self, call: Call) -> None:
        """Answer."""
        await call.reply({})

    def error(self, error: RequestError, request_id: str) -> Any:
        """OpenAI's envelope."""
        return openai_error(error)

    def stream_error(self, error: RequestError, request_id: str) -> Any:
        """The same."""
        return openai_stream_error(error)


@attrs.frozen
class BadBody:
    """A wire type with a member that no JSON value is."""

    when: datetime


def raises(*args: object) -> Any:
    """What a broken method does."""
    raise KeyError("x")


async def yields(call: Call) -> Any:
    """An async generator, which cannot be awaited."""
    yield call


def routes(*found: object) -> Callable[[Any], Any]:
    """A method `routes` that gives these."""
    return lambda self: found


def only(kind: type[RequestError], wrong: Callable[[], Any]) -> Callable[..., Any]:
    """A method `error` that is wrong for one kind of error."""
    return lambda self, error, request_id: wrong() if type(error) is kind else openai_error(error)


HANDLE = Sound(None).handle
BROKEN: list[tuple[dict[str, Any], str]] = [
    # what is changed, and what the line says of it
    ({"name": None}, "the protocol Odd is broken: name is None instead of a word"),
    ({"name": "two words"}, "the protocol two words is broken: name is 'two words' instead of a word"),
    ({"name": "other"}, "the protocol other is broken: its entry point calls it odd"),
    ({"request_id_header": 7}, "request_id_header is 7 instead of a word"),
    ({"request_id_header": "x-id\r\nx: y"}, r"request_id_header is 'x-id\r\nx: y' instead of a word"),
    ({"routes": None}, "it has no method routes"),
    ({"error": None}, "it has no method error"),
    ({"stream_error": "later"}, "it has no method stream_error"),
    ({"routes": raises}, "routes() failed: KeyError: 'x' (test_mounting.py:"),
    ({"routes": lambda self: None}, "routes() failed: TypeError: 'NoneType' object is not iterable"),
    ({"routes": routes(("POST", "/v1/odd", HANDLE))}, "routes()[0] is a tuple instead of a Route"),
    ({"routes": routes(Route("POST", "/v1/odd", HANDLE), None)}, "routes()[1] is None instead of a Route"),
    ({"routes": routes(Route("PO ST", "/v1/odd", HANDLE))}, "routes()[0] has the method 'PO ST'"),
    ({"routes": routes(Route(1, "/v1/odd", HANDLE))}, "routes()[0] has the method 1"),  # type: ignore[arg-type]
    ({"routes": routes(Route("POST", "v1/odd", HANDLE))}, "routes()[0] has the path 'v1/odd'; one is /words/{"),
    ({"routes": routes(Route("POST", "/v1/<id>", HANDLE))}, "routes()[0] has the path '/v1/<id>'"),
    ({"routes": routes(Route("POST", "/v1/{n:int}", HANDLE))}, "routes()[0] has the path '/v1/{n:int}'"),
    ({"routes": routes(Route("POST", "/v1/{a:path}/b", HANDLE))}, "routes()[0] has the path '/v1/{a:path}/b'"),
    ({"routes": routes(Route("POST", "/v1/{a}/{a}", HANDLE))}, "/v1/{a}/{a}, which names a placeholder twice"),
    ({"routes": routes(Route("POST", None, HANDLE))}, "routes()[0] has the path None"),  # type: ignore[arg-type]
    ({"routes": routes(Route("POST", "/v1/odd", None))}, "the handler None instead of an async function"),  # type: ignore[arg-type]
    ({"routes": routes(Route("POST", "/v1/odd", yields))}, "the handler yields instead of an async function"),
    ({"routes": routes(Route("POST", "/v1/odd", HANDLE, summary=7))}, "has the summary 7"),  # type: ignore[arg-type]
    ({"routes": routes(Route("POST", "/v1/odd", HANDLE, streams=b"x"))}, "streams b'x' instead of a StreamForm"),  # type: ignore[arg-type]
    (
        {"routes": routes(Route("POST", "/v1/odd", HANDLE, streams=attrs.evolve(NDJSON, content_type="a\nb")))},
        r"has streams of the content type 'a\nb'",
    ),
    ({"routes": routes(Route("POST", "/v1/odd", HANDLE, body=dict))}, "a body that cannot be read: Unreadable: <class"),
    (
        {"routes": routes(Route("POST", "/v1/odd", HANDLE, body=BadBody))},
        "routes()[0] has a body that cannot be read: Unreadable: BadBody.when: datetime is no annotation",
    ),
    ({"error": raises}, "error() failed for RequestError: KeyError: 'x' (test_mounting.py:"),
    ({"error": only(InternalError, lambda: None)}, "failed for InternalError: TypeError: it returned None instead of"),
    ({"error": only(InternalError, dict)}, "TypeError: it returned a dict instead of a WireError"),
    ({"error": only(InternalError, lambda: WireError(status=200, body={}))}, "the status 200 is not an error's"),
    ({"error": only(InternalError, lambda: WireError(status=999, body={}))}, "the status is 999 instead of a number"),
    ({"error": only(InternalError, lambda: WireError(status="500", body={}))}, "the status is '500' instead of"),  # type: ignore[arg-type]
    ({"error": only(InternalError, lambda: WireError(status=500, body=[]))}, "the body is a list instead of an object"),  # type: ignore[arg-type]
    ({"error": only(InternalError, lambda: WireError(status=500, body={"a": {1}}))}, "set is not JSON serializable"),
    ({"error": only(InternalError, lambda: WireError(status=500, body={}, headers={"a": "\n"}))}, "is no header"),
    ({"stream_error": raises}, "stream_error() failed for RequestError: KeyError: 'x'"),
    ({"stream_error": lambda self, error, request_id: "text"}, "TypeError: it returned 'text' instead of bytes"),
    ({"__init__": raises}, "the protocol odd of tests.protocols.test_mounting:Odd does not load: KeyError: 'x'"),
    ({"__init__": lambda self, host: exit()}, "does not load: SystemExit"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "line"), BROKEN, ids=[line for _, line in BROKEN])
def test_a_broken_protocol_ends_the_start_with_one_line(
    changes: dict[str, Any], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "Odd", type("Odd", (Sound,), {**changes, "__qualname__": "Odd"}))
    with pytest.raises(ProtocolLoadError) as caught:
        load_protocols(FakeHost(), found=[EntryPoint("odd", f"{__name__}:Odd", GROUP)])
    assert line in str(caught.value)
    assert "odd" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sound_one_is_loaded() -> None:
    (loaded,) = load_protocols(FakeHost(), found=[EntryPoint("odd", f"{__name__}:Sound", GROUP)])
    assert [route.path for route in routes_of(loaded)] == ["/v1/odd"]


def test_every_kind_of_error_is_tried() -> None:
    asked: list[type[RequestError]] = []

    class Listing(Sound):
        def error(self, error: RequestError, request_id: str) -> WireError:
            asked.append(type(error))
            return openai_error(error)

    globals()["Listing"] = Listing
    load_protocols(FakeHost(), found=[EntryPoint("odd", f"{__name__}:Listing", GROUP)])
    assert asked == list(ERROR_KINDS)
    assert {RequestError, InternalError} < set(ERROR_KINDS)


def test_what_an_error_is_described_as() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        print(1 / 0)
    assert described(caught.value).startswith("ZeroDivisionError: division by zero (test_mounting.py:")
    assert described(ValueError("a\n b" + "c" * 999)) == f"ValueError: a b{'c' * 297}..."
    assert described(KeyError()) == "KeyError"


def test_routes_are_checked_wherever_they_are_asked_for() -> None:
    class Changing(Sound):
        def routes(self) -> Any:
            return iter(["/v1/odd"])

    with pytest.raises(BrokenProtocol, match=r"the protocol odd is broken: routes\(\)\[0\] is '/v1/odd' instead of"):
        routes_of(Changing(None))
