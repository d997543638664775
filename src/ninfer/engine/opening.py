"""An engine that is being opened: it can be named before it is there, and refuses work until then.

A server answers from its first second on with it. Knows no device. Invariant: it becomes the engine once, and from then
on is the engine.
"""

from contextlib import AbstractAsyncContextManager

import trio

from ninfer.engine.types import (
    Engine,
    EngineError,
    EngineEvent,
    EngineFigures,
    EngineLimits,
    EngineStarting,
    Plan,
    Prompt,
)

_STARTING = "the model is being loaded"


class OpeningEngine:
    """Stands for an engine that comes later; implements `types.Engine`."""

    def __init__(self, limits: EngineLimits) -> None:
        """`limits`: as wanted. What the memory really takes is known to the engine."""
        self._limits = limits
        self._engine: Engine | None = None

    def become(self, engine: Engine) -> None:
        """The engine is there."""
        if self._engine is not None:
            raise RuntimeError("an engine is opened once")
        self._engine = engine

    @property
    def limits(self) -> EngineLimits:
        """What is fixed at start."""
        return self._limits if self._engine is None else self._engine.limits

    @property
    def failure(self) -> EngineError | None:
        """Why nothing can be generated now, or None."""
        return EngineStarting(_STARTING) if self._engine is None else self._engine.failure

    def figures(self) -> EngineFigures:
        """The gauges and counters at this moment.

        Raises:
            EngineStarting: there is no engine yet.
        """
        if self._engine is None:
            raise EngineStarting(_STARTING)
        return self._engine.figures()

    def submit(self, prompt: Prompt, plan: Plan) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[EngineEvent]]:
        """Hand a request over.

        Raises:
            EngineStarting: there is no engine yet.
        """
        if self._engine is None:
            raise EngineStarting(_STARTING)
        return self._engine.submit(prompt, plan)
