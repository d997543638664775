"""The servers that `benchmarks.http_overhead` compares: one process, one variant, on a loopback port.

    python -m benchmarks.overhead_server VARIANT

- `constants`: a bare ASGI application on the same connection loop that sends fixed bytes, one event a piece: the floor
- `ninfer`: the real application and Chat protocol over a host that yields events with no model and no wait
- `house`: the real service, prompt, reply and the scripted engine below it as well

It prints its port on one line and runs until its standard input closes. How many events a stream has stands in the
last user text of the request: `[[pad:N]]`.
"""

import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

from ninfer.conversation import (
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    ModelCard,
    Started,
    TextDelta,
    Timings,
    Usage,
)
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.server.app import create_app
from ninfer.server.serving import Stop, serve
from ninfer.server.sockets import open_listener
from ninfer.service.host import ProtocolFlags, ServiceHost
from tests.fuzz.house import CARD, open_house

PAD = re.compile(r"\[\[pad:(\d+)\]\]")
TURNS_PER_EVENT = 4
"""Scheduler turns between two events of the playing host: enough that each is written by itself, as when a device
commits one token at a time, and not joined with the next one."""


def asked_events(text: str) -> int:
    """How many text events a request asks for."""
    found = PAD.search(text)
    return int(found[1]) if found else 1


@attrs.frozen
class PlayingHost:
    """A host whose generations are events made of nothing."""

    model: ModelCard = CARD
    flags: ProtocolFlags = attrs.field(factory=ProtocolFlags)
    accepts_work: bool = True

    def check_model(self, model: str) -> None:
        """Every name will do."""

    @asynccontextmanager
    async def generate(self, request: GenerationRequest) -> AsyncIterator[AsyncIterator[Event]]:
        """As many events as the last turn asks for."""
        yield self._events(asked_events(request.turns[-1].text))

    async def _events(self, count: int) -> AsyncIterator[Event]:
        yield Started(prompt_tokens=1, cached_tokens=0)
        for _ in range(count):
            for _ in range(TURNS_PER_EVENT):
                await trio.lowlevel.checkpoint()
            yield TextDelta(" lorem", "answer")
        usage = Usage(prompt_tokens=1, cached_tokens=0, completion_tokens=count, reasoning_tokens=0)
        yield Finished(reason=FinishReason.STOP_TOKEN, usage=usage, timings=Timings(prompt_s=0.0, generation_s=0.0))


def constant_event() -> bytes:
    """An event of the length that Chat's have."""
    chunk = {
        "id": "chatcmpl-" + "0" * 32,
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": CARD.id,
        "choices": [{"index": 0, "delta": {"content": " lorem"}, "logprobs": None, "finish_reason": None}],
    }
    return f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n".encode()


EVENT = constant_event()

ASGIEvent = dict[str, Any]


async def constants(
    scope: dict[str, Any], receive: Callable[[], Awaitable[ASGIEvent]], send: Callable[[ASGIEvent], Awaitable[None]]
) -> None:
    """The same events as constants: no parsing, no framework, no protocol."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(asked_events(body.decode()) + 2):  # the role and the finish reason have events of their own
        await trio.lowlevel.checkpoint()
        await send({"type": "http.response.body", "body": EVENT, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


async def run(variant: str) -> None:
    """Serve one variant until standard input closes."""
    async with AsyncExitStack() as stack:
        app: Any = constants
        if variant != "constants":
            host: ServiceHost = PlayingHost()
            if variant == "house":
                host = (await stack.enter_async_context(open_house())).service
            app = create_app(host, (OpenAIChat(host),))
        listener = open_listener("127.0.0.1", 0)
        stop = Stop()
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve, app, [listener], stop, grace_s=1.0))
            print(listener.getsockname()[1], flush=True)
            await trio.to_thread.run_sync(sys.stdin.read)
            stop.ask()


if __name__ == "__main__":
    trio.run(run, sys.argv[1])
