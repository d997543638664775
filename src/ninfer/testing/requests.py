"""Requests at the application itself, without sockets: Trio's autojump clock can stand in for time.

It knows ASGI and bodies, no protocol.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import attrs
import trio

Application: TypeAlias = Callable[..., Awaitable[None]]
"""An ASGI application: what `create_app` makes."""


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
    app: Application,
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


async def post_json(app: Application, path: str, body: object) -> ASGIAnswer:
    """POST `body` as JSON to the application."""
    return await asgi_call(app, "POST", path, json.dumps(body).encode())


def json_lines(body: bytes) -> list[Any]:
    """The values of a stream of lines of JSON; a line that is none is an error, and so is a last one without end."""
    assert body.endswith(b"\n") or not body, body[-80:]
    return [json.loads(line) for line in body.split(b"\n")[:-1]]


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
