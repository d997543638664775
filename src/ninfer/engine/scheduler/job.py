"""One request inside the scheduler: how far it is, what it has chosen, how it leaves.

Positions count from the first prompt token. `next_position` is the first one that has not been dispatched; what lies
before it is done or in flight. A generated token is known here one step after the device chose it; a forced one before
it is fed, so whatever the device chose in its place is dropped like any choice of a replay.

Invariant: `generated` only grows. A pause sets `next_position` back to 0 and nothing else of the request's past.
"""

import enum

import attrs

from ninfer.engine.scheduler.thinking import ThinkingWatch
from ninfer.engine.types import EngineEvent, Plan, StopReason, Work


@attrs.frozen(kw_only=True)
class Pacing:
    """Holds a request back in time. A model needs none; the scripted engine's `slow` and `pace` are made of it."""

    first_s: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))
    """From the moment at which the first token could be chosen to the moment at which it is."""
    each_s: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))
    """From one token to the next."""


UNPACED = Pacing()


class Leaving(enum.Enum):
    """Why a request gives its lane back once nothing of it is in flight."""

    PAUSED = "paused"
    ENDED = "ended"


class Phase(enum.Enum):
    """Where a request is in the cycle of a pause."""

    STEADY = "steady"
    REPLAYING = "replaying"
    """Paused, or not yet where it was."""
    REBUILT = "rebuilt"
    """Where it was; nothing new has been committed since."""


@attrs.define(kw_only=True, eq=False)
class Job:
    """The mutable state of one request."""

    ticket: int
    """Order of arrival: smaller is older."""
    prompt: tuple[int, ...]
    plan: Plan
    limit_tokens: int
    """Tokens it may generate: the smaller of what it asked for and what context and pool have room for."""
    pacing: Pacing = UNPACED

    passed: int = 0
    """Younger requests that were admitted while this one waited and did not fit."""
    slot: int | None = None
    pages: tuple[int, ...] = ()
    next_position: int = 0
    frontier: int = 0
    """The first position that has not been committed, in this lane."""
    rebuild_to: int = 0
    """The frontier at the last pause: a replay runs up to here."""
    phase: Phase = Phase.STEADY
    pauses: int = 0
    """How often it was told to give its lane up, for whatever reason."""
    replayed_tokens: int = 0
    in_flight: int = 0
    """Dispatched units whose result has not come back."""
    generated: list[int] = attrs.field(factory=list)
    prompt_done: int = 0
    """Prompt tokens that were ever committed; progress is published only beyond this."""
    thinking: ThinkingWatch | None = attrs.field(init=False)
    ready_s: float | None = None
    """When the pacing lets the next token be chosen; None until the first one could be."""
    leaving: Leaving | None = None
    outcome: EngineEvent | None = None
    """What to tell when it has left; None for a cancelled one, which nobody listens to."""

    @thinking.default
    def _watch(self) -> ThinkingWatch | None:
        return None if self.plan.thinking is None else ThinkingWatch(self.plan.thinking)

    @property
    def admitted(self) -> bool:
        """Whether it owns a lane now."""
        return self.slot is not None

    @property
    def prefilling(self) -> bool:
        """Whether its next unit is a prefill chunk."""
        return self.next_position < len(self.prompt)

    @property
    def work(self) -> Work:
        """What has been run for it so far."""
        return Work(
            prefilled_tokens=self.prompt_done,
            generated_tokens=len(self.generated),
            replayed_tokens=self.replayed_tokens,
        )

    def chunk_end(self, chunk_tokens: int) -> int:
        """Where the next prefill chunk ends."""
        return min(self.next_position + chunk_tokens, len(self.prompt))

    @property
    def wants_unit(self) -> bool:
        """Whether there is anything left to dispatch for it."""
        if self.leaving is not None:
            return False
        # Feeding generated token i chooses token i + 1: past the limit nobody wants it.
        return self.prefilling or self.next_position - len(self.prompt) + 1 < self.limit_tokens

    @property
    def feed(self) -> int | None:
        """The token that the next decode row feeds, None where only the device knows it yet."""
        index = self.next_position - len(self.prompt)
        return self.generated[index] if index < len(self.generated) else None

    def chooses(self, end: int) -> bool:
        """Whether a unit that ends before position `end` chooses a token that is new."""
        index = end - len(self.prompt)
        return len(self.generated) <= index < self.limit_tokens

    def due(self, token: int) -> tuple[int, ...]:
        """The tokens that its thinking budget forces behind `token`, its latest one; whole or none (THINK-011)."""
        if self.thinking is None or not self.thinking.take(token):
            return ()
        forced = self.thinking.budget.forced_tokens
        return forced if len(self.generated) + len(forced) <= self.limit_tokens else ()

    def stop_reason(self, request_tokens: int) -> StopReason | None:
        """Why it is complete after its latest token, or None."""
        if self.generated and self.generated[-1] in self.plan.stop_tokens:
            return StopReason.STOP_TOKEN
        if len(self.generated) >= self.plan.max_new_tokens:
            return StopReason.OUTPUT_LIMIT
        if len(self.prompt) + len(self.generated) >= request_tokens:
            return StopReason.CONTEXT_LIMIT
        return None

    def rewind(self) -> None:
        """Forget where it was; what it has generated and published stays."""
        self.rebuild_to = max(self.rebuild_to, self.frontier)
        self.phase = Phase.REPLAYING
        self.next_position = self.frontier = 0
        self.slot = None
        self.pages = ()
        self.leaving = None
