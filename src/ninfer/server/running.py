"""The requests that are being answered, so that a stop can end them all. It knows them, not what they do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol as Interface

import trio


class Stoppable(Interface):
    """Something that can be told to end."""

    def stop(self) -> None:
        """End soon, with whatever answer says that the server is stopping."""
        ...


class RunningCalls:
    """All calls of one server."""

    def __init__(self) -> None:
        self._calls: set[Stoppable] = set()
        self.stopping = trio.Event()
        """Set when every call is to end."""

    def __len__(self) -> int:
        return len(self._calls)

    @contextmanager
    def entered(self, call: Stoppable) -> Iterator[None]:
        """Keep `call` among the running ones for the length of the block; one that comes too late is stopped."""
        self._calls.add(call)
        try:
            if self.stopping.is_set():
                call.stop()
            yield
        finally:
            self._calls.discard(call)

    def stop(self) -> None:
        """End every call, now and from now on. Idempotent."""
        self.stopping.set()
        for call in tuple(self._calls):
            call.stop()
