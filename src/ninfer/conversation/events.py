"""What a generation tells its protocol, in order. Events are the only currency between service and encoders.

Order: `Started` once, then `PromptProgress`, `TextDelta` and `CallMade` in any number (no progress after the first
output), then `Finished` once. A failure is no event: the iterator raises a `RequestError`, before or after `Started`.
"""

import enum
from typing import Literal, TypeAlias

import attrs

from ninfer.conversation.tools import ToolCall


@attrs.frozen
class Started:
    """The engine has admitted the request."""

    prompt_tokens: int
    cached_tokens: int


@attrs.frozen(kw_only=True)
class PromptProgress:
    """A prefill unit has been committed. Cumulative; never moves backwards."""

    total_tokens: int
    cached_tokens: int
    processed_tokens: int
    elapsed_s: float
    """Time since admission."""


@attrs.frozen(kw_only=True)
class Timings:
    """When the work was done; all in seconds."""

    prompt_s: float
    """From the admission to the commit of the first output token (or to the end, if there was none)."""
    generation_s: float
    """From the first committed output token to the last one."""


@attrs.frozen
class Committed:
    """How far the engine had come: everything it has generated counts, shown already or still held back."""

    completion_tokens: int
    timings: Timings


@attrs.frozen
class TextDelta:
    """New text of one channel. Never empty, always whole characters."""

    text: str
    channel: Literal["answer", "reasoning"]
    committed: Committed | None = attrs.field(default=None, eq=False)
    """The latest commit before this text was shown (OBS-011). No part of what is said: equality leaves it out."""


@attrs.frozen
class CallMade:
    """The model has made a call. Whole: its arguments are typed only when its markup is complete."""

    call: ToolCall


class FinishReason(enum.Enum):
    """Why a generation ended. Each protocol has its own words for these."""

    STOP_TOKEN = "stop_token"
    STOP_STRING = "stop_string"
    OUTPUT_LIMIT = "output_limit"
    CONTEXT_LIMIT = "context_limit"


@attrs.frozen(kw_only=True)
class Usage:
    """Token counts of one request. `completion_tokens` includes the reasoning and the stop token."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int


@attrs.frozen(kw_only=True)
class Finished:
    """Last event, exactly one for a request that was neither cancelled nor failed."""

    reason: FinishReason
    usage: Usage
    timings: Timings
    stop: str | None = None
    """The stop string that ended the reply, if one did."""


Event: TypeAlias = Started | PromptProgress | TextDelta | CallMade | Finished
