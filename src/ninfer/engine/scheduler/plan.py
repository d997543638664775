"""What the scheduler says: units to dispatch, and events for those who wait outside.

Plain values. The worker hands a step back with its result; nothing else ties the two together.
"""

from typing import TypeAlias

import attrs

from ninfer.engine.device import DecodeRow, PrefillUnit
from ninfer.engine.types import EngineEvent

Note: TypeAlias = tuple[int, EngineEvent]
"""A request's ticket, and what is to be told about it."""


@attrs.frozen
class PrefillStep:
    """One prefill chunk of one request."""

    ticket: int
    unit: PrefillUnit


@attrs.frozen
class DecodeStep:
    """One round: `rows[i]` belongs to `tickets[i]`. Never empty."""

    tickets: tuple[int, ...]
    rows: tuple[DecodeRow, ...]


@attrs.frozen(kw_only=True)
class StepPlan:
    """One turn of the inner loop: at most one prefill chunk, then at most one decode round."""

    prefill: PrefillStep | None
    decode: DecodeStep | None
    notes: tuple[Note, ...]
    wake_s: float | None
    """The earliest moment at which a request that is held back by its pacing may go on."""


@attrs.frozen(kw_only=True)
class Settled:
    """What the end of a unit meant. A row is live if its request still wanted the result."""

    notes: tuple[Note, ...]
    live_rows: int
    faulty_rows: int
    """Live rows whose result was unusable: their requests have failed."""
