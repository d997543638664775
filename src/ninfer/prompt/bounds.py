"""How far the work for one prompt may go, and how it is told to stop.

The work is synchronous and runs in a thread, which nothing can interrupt: it looks at its `Cancellation` between the
pieces of a rendering and between batches of text, and a rendering in another process is killed.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
from attrs import validators

MAX_RENDERED_CHARS = 64 << 20
"""Far above any context; a rendering that is longer ends there."""

MAX_RENDER_S = 20.0
"""A rendering takes milliseconds; one that takes this long never ends."""


class Abandoned(Exception):
    """The work was told to stop, because its result is not needed any more."""


@attrs.define(eq=False)
class Cancellation:
    """Tells the work of one thread to stop. `cancel` may come from any thread."""

    cancelled: bool = attrs.field(default=False, init=False)
    _stop: Callable[[], None] | None = attrs.field(default=None, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def cancel(self) -> None:
        """Let the work stop as soon as it can. Says nothing twice."""
        with self._lock:
            self.cancelled = True
            if self._stop is not None:
                self._stop()

    def check(self) -> None:
        """Raise `Abandoned` if the work is to stop."""
        if self.cancelled:
            raise Abandoned

    @contextmanager
    def calling(self, stop: Callable[[], None]) -> Iterator[None]:
        """For the length of the block `cancel` calls `stop` too, which must not wait.

        Raises:
            Abandoned: the work is to stop, before the block or in it.
        """
        with self._lock:
            self.check()
            self._stop = stop
        try:
            yield
        finally:
            with self._lock:
                self._stop = None


@attrs.frozen(kw_only=True)
class RenderBounds:
    """Bounds of the renderings of one prompt: the time is for all of them, the rest for each."""

    seconds: float = attrs.field(default=MAX_RENDER_S, validator=validators.gt(0))
    """From now on."""
    chars: int = attrs.field(default=MAX_RENDERED_CHARS, validator=validators.gt(0))
    cancellation: Cancellation = attrs.field(factory=Cancellation)
    _deadline_s: float = attrs.field(init=False)

    @_deadline_s.default
    def _start_clock(self) -> float:
        return time.monotonic() + self.seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left; below zero when there are none."""
        return self._deadline_s - time.monotonic()
