"""The server that clients are tested against: assembled as `serve` assembles it, over the scripted engine.

All installed protocols are mounted, the order of every event is judged while it is sent, and the context is as wide as
agents need it. Leaving the block asserts that nothing of any request is left in the engine.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from ninfer.cli.assembly import open_house
from ninfer.cli.options import CapacityOptions, LogOptions, ModelOptions, ServeOptions
from ninfer.engine.engine import RunningEngine
from ninfer.protocols.registry import load_protocols
from ninfer.testing import RunningServer, running_server, until
from tools.wide_artifact import CONTEXT_TOKENS

CLIENT_S = 100.0
"""A client that takes longer hangs."""
Result = TypeVar("Result")


@attrs.frozen(kw_only=True)
class ScriptedServer:
    """A server to send clients to."""

    server: RunningServer
    engine: RunningEngine
    model: str

    @property
    def base_url(self) -> str:
        """Without /v1."""
        return self.server.base_url

    async def idle(self) -> None:
        """Return when no request is in the engine; fails where that takes too long."""
        figures = self.engine.figures
        await until(lambda: figures().resident_requests + figures().waiting_requests == 0)


@asynccontextmanager
async def scripted_server(artifact: Path) -> AsyncIterator[ScriptedServer]:
    """Serve `artifact` without its model."""
    options = ServeOptions(
        model=ModelOptions(engine="scripted"),
        capacity=CapacityOptions(max_context=CONTEXT_TOKENS, max_concurrency=2),
        logs=LogOptions(check_events=True),
    )
    house = open_house(artifact, options, lambda progress: None)
    with house.artifact:
        async with house.open_engine(options.model.engine) as engine:
            service = house.service(engine, options)
            async with running_server(service, load_protocols(service)) as server:
                scripted = ScriptedServer(server=server, engine=engine, model=house.card.id)
                yield scripted
                await scripted.idle()
            assert engine.failure is None
            assert engine.figures().free_pages == engine.figures().total_pages


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run a synchronous client beside the server."""
    with trio.fail_after(CLIENT_S):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
