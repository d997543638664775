"""The engine's face: what goes in, what comes out, and what it needs from above. No JAX here.

A request is submitted as a `Prompt` and a `Plan`; its events come over a memory channel in the order `Admitted`,
`PromptProgress`*, `Tokens`*, then one of `Finished` and `Failed`. Leaving the `submit` block cancels the request,
wherever it is. Times are seconds of the engine's own monotonic clock: only their differences mean anything.
"""

import enum
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

import attrs
import trio
from attrs import validators

MAX_CANDIDATES = 20
"""No request samples from more candidates than this (SAMP-006)."""

MAX_LANES = 8
"""No engine has more lanes than this (EXEC-001)."""

PAGE_TOKENS = 64
"""Tokens in one page of KV memory, rows in one prefill tile, and the grid on which prefill programs start."""


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
class Plan:
    """How to continue a prompt."""

    sampling: Sampling
    max_new_tokens: int = attrs.field(validator=validators.ge(0))
    """0 prefills the prompt and generates nothing."""
    stop_tokens: frozenset[int] = frozenset()


class StopReason(enum.Enum):
    """Why the engine ended a request by itself."""

    STOP_TOKEN = "stop_token"
    OUTPUT_LIMIT = "output_limit"
    CONTEXT_LIMIT = "context_limit"


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


@attrs.frozen
class Finished:
    """The request is complete and owns nothing any more."""

    reason: StopReason


@attrs.frozen
class Failed:
    """The request has failed and owns nothing any more."""

    error: EngineError


EngineEvent: TypeAlias = Admitted | PromptProgress | Tokens | Finished | Failed


@attrs.frozen(kw_only=True)
class EngineLimits:
    """What is fixed at start."""

    max_context_tokens: int = attrs.field(validator=validators.ge(1))
    """Ceiling of one request, prompt and output together."""
    lanes: int = attrs.field(validator=[validators.ge(1), validators.le(MAX_LANES)])
    kv_capacity_tokens: int = attrs.field(validator=validators.ge(PAGE_TOKENS))
    prefill_chunk_tokens: int = attrs.field(validator=validators.ge(PAGE_TOKENS))
    """The effective chunk: a multiple of `PAGE_TOKENS` (D38)."""

    @prefill_chunk_tokens.validator
    def _on_the_grid(self, attribute: "attrs.Attribute[int]", value: int) -> None:
        if value % PAGE_TOKENS:
            raise ValueError(f"prefill_chunk_tokens={value} is no multiple of {PAGE_TOKENS}")


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
    pauses: int = 0
    """How often a request was paused for the memory of an older one."""
    recoveries: int = 0
    """Failed units that the engine survived."""


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
        """Why nothing can be generated any more, or None while the engine can accept work."""
        ...

    def figures(self) -> EngineFigures:
        """The gauges and counters at this moment. Never blocks."""
        ...

    def submit(self, prompt: Prompt, plan: Plan) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[EngineEvent]]:
        """Hand a request to the device thread; leaving the block cancels it and frees what it owns.

        Raises:
            EngineStopped: the engine accepts no work.
            CapacityExceeded: the prompt can never fit.
        """
        ...
