"""Templates that came with a folder or a file: rendered in processes that are killed when they reach a bound.

One process is started with the template and asked again and again; a second one comes when two threads render at
once, and one that was killed is replaced by the next rendering. It knows no tokens and no conversation.

Invariant: no text of the template is compiled or rendered in this process.
"""

import contextlib
import logging
import weakref
from collections import deque
from collections.abc import Mapping

from ninfer.conversation import EngineUnavailable, InvalidRequest
from ninfer.prompt.bounds import MAX_RENDER_S, RenderBounds
from ninfer.prompt.template import (
    REFUSAL_CODE,
    RenderingStopped,
    bad_template,
    refusal,
    too_long,
    too_slow,
)
from ninfer.sandbox.frames import Answer, Kind
from ninfer.sandbox.process import MEMORY_BYTES, Ended, RenderingProcess, TookTooLong

log = logging.getLogger(__name__)

MAX_SOURCE_CHARS = 4 << 20
"""The longest published templates have a few ten thousand."""

_MEMORY = f"it takes more than {MEMORY_BYTES >> 20} MiB of memory"


class ForeignTemplate:
    """A stranger's chat template. `close` ends its processes; so does the end of this one."""

    shows_every_turn = False
    """It may leave out what it likes."""
    in_place = False

    def __init__(self, source: str) -> None:
        """Start a process and let it compile `source`.

        Raises:
            BadTemplate: the source is not valid Jinja, or does not compile within the bounds.
        """
        self.source = self.own_text = source
        if len(source) > MAX_SOURCE_CHARS:
            raise bad_template(f"it has {len(source)} characters; at most {MAX_SOURCE_CHARS} are read")
        self._processes: set[RenderingProcess] = set()
        self._idle: deque[RenderingProcess] = deque()
        weakref.finalize(self, _close, self._processes)
        try:
            process = self._started()
            answer = process.compile(source, seconds=MAX_RENDER_S)
        except TookTooLong as error:
            raise bad_template(f"it does not compile within {MAX_RENDER_S:g} s") from error
        except (Ended, OSError) as error:
            raise bad_template(f"it cannot be compiled: {error}") from error
        if answer.kind is not Kind.DONE:
            self.close()
            raise bad_template(answer.text if answer.kind is Kind.BAD_SOURCE else _MEMORY)
        self.variables = frozenset(answer.text.split("\n")) - {""}
        """Names that the template reads and nowhere sets itself."""
        self._idle.append(process)

    @property
    def processes(self) -> tuple[RenderingProcess, ...]:
        """Those that are there, idle or not."""
        return tuple(self._processes)

    @property
    def idle(self) -> int:
        """Processes that have nothing to do."""
        return len(self._idle)

    def close(self) -> None:
        """End the processes. A rendering afterwards starts one again."""
        _close(self._processes)

    def render(self, variables: Mapping[str, object], bounds: RenderBounds | None = None) -> str:
        """The text for `variables`; see `Template.render`.

        Raises:
            EngineUnavailable: the process that renders has ended by itself; the next rendering gets a new one.
        """
        bounds = bounds or RenderBounds()
        try:
            answer = self._answer(variables, bounds)
        except TookTooLong as error:
            raise too_slow(bounds) from error
        except (Ended, OSError) as error:
            bounds.cancellation.check()
            log.warning("chat template: a rendering has failed: %s", error)
            raise EngineUnavailable(refusal(f"{error}; the next one is rendered by another")) from error
        match answer.kind:
            case Kind.DONE:
                return answer.text
            case Kind.TOO_LONG:
                raise too_long(bounds)
            case Kind.NO_MEMORY:
                raise RenderingStopped(refusal(_MEMORY), code=REFUSAL_CODE)
            case Kind.REFUSED | Kind.BAD_SOURCE:
                raise InvalidRequest(refusal(answer.text), code=REFUSAL_CODE)

    def _answer(self, variables: Mapping[str, object], bounds: RenderBounds) -> Answer:
        if bounds.left_s <= 0:
            raise TookTooLong
        process = self._waiting()
        fresh = process is None
        if process is None:
            process = self._started()
        try:
            with bounds.cancellation.calling(process.kill):
                if fresh:
                    process.compile(self.source, seconds=bounds.left_s)
                return process.render(variables, most_chars=bounds.chars, seconds=bounds.left_s)
        finally:
            # A process that `cancel` has killed may look alive for a moment more.
            if process.alive and not bounds.cancellation.cancelled:
                self._idle.append(process)
            else:
                process.close()
                self._processes.discard(process)

    def _waiting(self) -> RenderingProcess | None:
        """A process that is there and has nothing to do."""
        with contextlib.suppress(IndexError):
            while not (process := self._idle.pop()).alive:
                process.close()
                self._processes.discard(process)
            return process
        return None

    def _started(self) -> RenderingProcess:
        process = RenderingProcess()
        self._processes.add(process)
        return process


def _close(processes: set[RenderingProcess]) -> None:
    for process in tuple(processes):
        process.close()
    processes.clear()
