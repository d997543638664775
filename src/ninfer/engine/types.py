"""The engine's face: what goes in, what comes out, and what it needs from above. No JAX here.

A request is submitted as a `Prompt` and a `Plan`; its events come over a memory channel in the order `Admitted`,
`PromptProgress`*, `Tokens`*, then one of `Finished` and `Failed`; after `Admitted`, `Rescheduled` may come anywhere.
Leaving the `submit` block cancels the request, wherever it is. Times are seconds of the engine's own monotonic clock:
only their differences mean anything.
"""

import enum
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

import attrs
import trio
from attrs import validators

MAX_CANDIDATES = 20
"""No request samples from more candidates than this (SAMP-006)."""

MAX_LANES = 8
"""No engine has more lanes than this (EXEC-001)."""

PAGE_TOKENS = 64
"""Tokens in one page of KV memory, rows in one prefill tile, and the grid on which prefill programs start."""

KvDtype: TypeAlias = Literal["bf16", "int8", "fp8"]
"""How keys and values are stored (KVFMT-001)."""


class EngineError(Exception):
    """Base of what can end a request inside the engine."""


class CapacityExceeded(EngineError):
    """The request alone can never fit the memory that the engine owns."""


class UnitFailed(EngineError):
    """A unit of work failed: its requests end, the engine goes on. `out_of_memory` tells the two kinds apart."""

    def __init__(self, message: str, *, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.out_of_memory = out_of_memory


class EngineStopped(EngineError):
    """The engine runs nothing any more: it was closed, or a failure was not recoverable."""


class EngineStarting(EngineError):
    """The engine runs nothing yet."""


class DeviceLost(EngineStopped):
    """The device itself has failed. Nothing can mend that from inside: the process has to end (LIFE-027)."""


@attrs.frozen
class Prompt:
    """A prepared prompt: at least one token."""

    tokens: tuple[int, ...] = attrs.field(validator=validators.min_len(1))


@attrs.frozen(kw_only=True)
class Sampling:
    """A resolved sampler: nothing is left to defaults. Formulas: model facts, section 11."""

    temperature: float = attrs.field(validator=validators.ge(0))
    """0 takes the lowest id among the maxima of the penalised logits."""
    top_k: int = attrs.field(default=0, validator=[validators.ge(0), validators.le(MAX_CANDIDATES)])
    """0 means the cap, `MAX_CANDIDATES`."""
    top_p: float = attrs.field(default=1.0, validator=[validators.ge(0), validators.le(1)])
    min_p: float = attrs.field(default=0.0, validator=[validators.ge(0), validators.le(1)])
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = attrs.field(default=0, validator=[validators.ge(-(1 << 63)), validators.lt(1 << 63)])
    """Random numbers are a function of (seed, position of the token, purpose) and of nothing else."""


@attrs.frozen(kw_only=True)
class ThinkingBudget:
    """How long the model may think in a block that the prompt has opened, and what then ends the block for it."""

    limit_tokens: int = attrs.field(validator=validators.ge(1))
    """Tokens of the model's own (THINK-004). The one that reaches the limit is the last before the forced ones."""
    close_token: int
    """The model closes the block by this token, if one of `confirming_tokens` or the end follows (THINK-019)."""
    confirming_tokens: frozenset[int] = frozenset()
    forced_tokens: tuple[int, ...] = attrs.field(validator=validators.min_len(1))
    """Guidance and close marker: committed whole and without sampling, or not at all."""

    def fits(self, capacity_tokens: int) -> bool:
        """Whether a request that may generate so many tokens ends below the limit, or has room for all forced tokens
        and one more (THINK-011)."""
        return capacity_tokens <= self.limit_tokens or capacity_tokens > self.limit_tokens + len(self.forced_tokens)


@attrs.frozen(kw_only=True)
class Plan:
    """How to continue a prompt."""

    sampling: Sampling
    max_new_tokens: int = attrs.field(validator=validators.ge(0))
    """0 prefills the prompt and generates nothing."""
    stop_tokens: frozenset[int] = frozenset()
    thinking: ThinkingBudget | None = attrs.field(default=None)
    """None leaves thinking to the model and the limits."""

    @thinking.validator
    def _never_stops(self, attribute: "attrs.Attribute[ThinkingBudget | None]", value: ThinkingBudget | None) -> None:
        if value is not None and not self.stop_tokens.isdisjoint(value.forced_tokens):
            raise ValueError(f"the forced tokens {value.forced_tokens} hold one that ends the reply")


class StopReason(enum.Enum):
    """Why the engine ended a request by itself."""

    STOP_TOKEN = "stop_token"
    OUTPUT_LIMIT = "output_limit"
    CONTEXT_LIMIT = "context_limit"
    """It is as long as one request can be here: the context ceiling, or all of the KV memory."""


@attrs.frozen
class Admitted:
    """The request has a lane; `cached_tokens` of its prompt need no prefill."""

    cached_tokens: int
    at_s: float


@attrs.frozen
class PromptProgress:
    """A prefill unit has been committed: `processed_tokens` of the prompt are done, cached ones included."""

    processed_tokens: int
    at_s: float


@attrs.frozen
class Tokens:
    """Newly committed tokens, never none. A stop token is the last of them when one ended the request."""

    tokens: tuple[int, ...]
    at_s: float
    forced: bool = False
    """Nobody chose them: they end a thinking budget."""


class Transition(enum.Enum):
    """What happens to the lane of a request that was admitted, beside its end (SCHED-012)."""

    PAUSE_STARTED = "pause_started"
    """It is to give its lane up, and does as soon as nothing of it is in flight."""
    PAUSED = "paused"
    """It owns nothing any more, but for its place in the order. A device that lost its memory pauses everybody."""
    RESTORED = "restored"
    """It has a lane again, and pages for all that it had and one unit."""
    REPLAY_COMPLETE = "replay_complete"
    """It is where it was."""
    RECOVERY_COMPLETE = "recovery_complete"
    """Its first new unit has been committed."""


@attrs.frozen(kw_only=True)
class Work:
    """Tokens that were run so far."""

    prefilled_tokens: int
    generated_tokens: int
    """Forced ones included."""
    replayed_tokens: int
    """Run again; they count as nothing else."""


@attrs.frozen(kw_only=True)
class Rescheduled:
    """A transition of this request; between two of them the work of others is what `everybody` gains over `own`."""

    transition: Transition
    pause: int
    """Which of its pauses this belongs to, from 1."""
    own: Work
    everybody: Work
    at_s: float


@attrs.frozen
class Finished:
    """The request is complete and owns nothing any more."""

    reason: StopReason


@attrs.frozen
class Failed:
    """The request has failed and owns nothing any more."""

    error: EngineError


EngineEvent: TypeAlias = Admitted | PromptProgress | Tokens | Rescheduled | Finished | Failed


@attrs.frozen(kw_only=True)
class EngineLimits:
    """What is fixed at start."""

    max_context_tokens: int = attrs.field(validator=validators.ge(1))
    """Ceiling of one request, prompt and output together."""
    lanes: int = attrs.field(validator=[validators.ge(1), validators.le(MAX_LANES)])
    kv_capacity_tokens: int = attrs.field(validator=validators.ge(PAGE_TOKENS))
    """KV memory of all requests together. A plan until the engine is ready, then what the device has."""
    prefill_chunk_tokens: int = attrs.field(validator=validators.ge(PAGE_TOKENS))
    """The effective chunk: a multiple of `PAGE_TOKENS` (D38)."""

    @prefill_chunk_tokens.validator
    def _on_the_grid(self, attribute: "attrs.Attribute[int]", value: int) -> None:
        if value % PAGE_TOKENS:
            raise ValueError(f"prefill_chunk_tokens={value} is no multiple of {PAGE_TOKENS}")

    @property
    def request_tokens(self) -> int:
        """Most tokens of one request that is alone, prompt and output together; the last of them needs no memory."""
        return min(self.max_context_tokens, self.kv_capacity_tokens + 1)


@attrs.frozen(kw_only=True)
class EngineFigures:
    """Gauges and counters at one moment, for metrics, tests and the idle integrity check."""

    free_pages: int
    total_pages: int
    free_slots: int
    total_slots: int
    waiting_requests: int
    """Requests that have not been admitted yet."""
    resident_requests: int
    """Requests that own a lane."""
    prefilling_requests: int = 0
    """Residents whose next unit is a prefill chunk, of a replay or not; the others decode."""
    replaying_requests: int = 0
    """Residents that are not yet where they were when they were paused."""
    paused_requests: int = 0
    """Requests that gave their lane and pages back and wait for a replay."""
    prefilled_tokens: int
    generated_tokens: int
    decode_rounds: int
    prefill_units: int
    compilations: int
    """Programs compiled so far; constant after readiness."""
    replayed_tokens: int = 0
    """Tokens that replays have run again; they count neither as prefilled nor as generated."""
    forced_tokens: int = 0
    """Generated tokens that nobody chose."""
    pauses: int = 0
    """How often a request was paused for the memory of an older one."""
    restores: int = 0
    """How often a paused request got a lane again, to be replayed."""
    recoveries: int = 0
    """Failed units that the engine survived."""
    losses: int = 0
    """How often the device lost its memory with such a unit, so that everybody was replayed."""


class TokenCodec(Protocol):
    """What the scripted engine needs from above: text to tokens and back, control tokens included."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of `text`, with control tokens recognised where they are spelled out."""
        ...

    def decode(self, tokens: tuple[int, ...]) -> str:
        """The text of `tokens`, control tokens spelled out."""
        ...


class Engine(Protocol):
    """What `service` sees of an engine, with a model or scripted. All methods are called from Trio's thread."""

    @property
    def limits(self) -> EngineLimits:
        """What is fixed at start."""
        ...

    @property
    def failure(self) -> EngineError | None:
        """Why nothing can be generated any more, or yet; None while the engine can accept work."""
        ...

    def figures(self) -> EngineFigures:
        """The gauges and counters at this moment. Never blocks."""
        ...

    def submit(self, prompt: Prompt, plan: Plan) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[EngineEvent]]:
        """Hand a request to the device thread; leaving the block cancels it and frees what it owns.

        Raises:
            EngineStopped, EngineStarting: the engine accepts no work.
            CapacityExceeded: the prompt can never fit.
        """
        ...
