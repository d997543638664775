"""A real server on loopback, and the bare application by hand: what tests drive protocols and the server with."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.plugin import Protocol
from ninfer.server.app import create_app
from ninfer.server.running import RunningCalls
from ninfer.server.serving import OpenConnections, Stop, serve
from ninfer.server.settings import ServerSettings
from ninfer.server.sockets import listener_url, open_listener
from ninfer.service.host import ServiceHost


@attrs.frozen(kw_only=True)
class RunningServer:
    """A server that answers under `base_url` as long as its block lasts."""

    base_url: str
    """Without /v1."""
    connections: OpenConnections
    running: RunningCalls
    stop: Stop

    @property
    def address(self) -> tuple[str, int]:
        """Where to connect a socket."""
        host, _, port = self.base_url.removeprefix("http://").rpartition(":")
        return host, int(port)


@asynccontextmanager
async def running_server(
    host: ServiceHost,
    protocols: Sequence[Protocol] | None = None,
    *,
    settings: ServerSettings | None = None,
    address: str = "127.0.0.1",
) -> AsyncIterator[RunningServer]:
    """Serve `protocols` (default: Chat over `host`) on a port of `address` that the system chooses."""
    settings = settings or ServerSettings(grace_s=1.0)
    running = RunningCalls()
    app = create_app(host, (OpenAIChat(host),) if protocols is None else protocols, settings=settings, running=running)
    listener = open_listener(address, 0)
    stop = Stop(running.stop)
    connections = OpenConnections()
    server = RunningServer(base_url=listener_url(listener), connections=connections, running=running, stop=stop)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, app, [listener], stop, grace_s=settings.grace_s, connections=connections))
        yield server
        stop.ask()


async def until(condition: Callable[[], bool], at_most_s: float = 15) -> None:
    """Wait for something that real sockets bring about and that nothing here is told of."""
    with trio.fail_after(at_most_s):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await trio.sleep(0.002)


@attrs.define(kw_only=True)
class ASGIAnswer:
    """What an application answered. `parts` are the body's pieces with the Trio time at which each came."""

    status: int = 0
    headers: dict[str, str] = attrs.field(factory=dict)
    parts: list[tuple[float, bytes]] = attrs.field(factory=list)
    complete: bool = False
    head_at_s: float = 0.0

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(part for _, part in self.parts)

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


async def asgi_call(
    app: Any,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    headers: Sequence[tuple[str, str]] = (),
    unfinished: bool = False,
    answer: ASGIAnswer | None = None,
) -> ASGIAnswer:
    """One request at the application itself: no sockets, so Trio's autojump clock can stand in for time.

    Cancelling the call is the client's departure. `answer` is filled as parts come. An `unfinished` body never ends.
    """
    answer = ASGIAnswer() if answer is None else answer
    raw_path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "asgi": {"spec_version": "2.1", "version": "3.0"},
        "method": method,
        "scheme": "http",
        "path": raw_path,
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers or [("host", "localhost")]],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "extensions": {},
    }
    sent = False

    async def receive() -> dict[str, object]:
        nonlocal sent
        if sent:
            await trio.sleep_forever()
        sent = True
        return {"type": "http.request", "body": body or b"", "more_body": unfinished}

    async def send(message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            answer.head_at_s = trio.current_time()
        elif message["type"] == "http.response.body":
            if message.get("body"):
                answer.parts.append((trio.current_time(), bytes(message["body"])))
            answer.complete = not message.get("more_body", False)

    await app(scope, receive, send)
    return answer


async def post_json(app: Any, path: str, body: object) -> ASGIAnswer:
    """POST `body` as JSON to the application."""
    return await asgi_call(app, "POST", path, json.dumps(body).encode())


def sse_data(body: bytes) -> list[str]:
    """The data of every event of a stream; comments are left out, other fields are an error."""
    found = []
    for block in body.decode().split("\n\n"):
        for line in block.split("\n"):
            if line.startswith(":") or not line:
                continue
            assert line.startswith("data: "), line
            found.append(line.removeprefix("data: "))
    return found
