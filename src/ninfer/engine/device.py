"""The port between the worker and the device: units of work go out, tokens come back one step later.

The worker knows lanes, pages and frontiers and decides what to run; a `Device` knows arrays and programs and decides
nothing. `programs` implements it with JAX; `tests/fakes` implements it with a list of calls. All methods are called
from the device thread alone. Dispatch never waits for the result: only `Pending.read` does.
"""

from typing import Protocol

import attrs

from ninfer.engine.types import Sampling


@attrs.frozen(kw_only=True)
class SampleRow:
    """How to choose one token from one row of logits."""

    sampling: Sampling
    position: int
    """Position that the chosen token will have: the counter of its random numbers."""


@attrs.frozen(kw_only=True)
class PrefillUnit:
    """One chunk of one lane's prompt, in the chunked form. It starts on the 64-token grid."""

    slot: int
    """Recurrent-state slot of the lane."""
    pages: tuple[int, ...]
    """The lane's page table from position 0; it covers the chunk's last position."""
    start: int
    """Position of the chunk's first token; a multiple of `PAGE_TOKENS`. 0 clears the slot first."""
    tokens: tuple[int, ...]
    """The chunk, at most the effective prefill chunk."""
    sample: SampleRow | None = None
    """Given for the prompt's last chunk: choose the token after it and leave it in the slot."""


@attrs.frozen(kw_only=True)
class DecodeRow:
    """One lane's row of a decode round: feed one token, choose the next."""

    slot: int
    pages: tuple[int, ...]
    """The lane's page table from position 0; it covers `position`."""
    position: int
    """Position of the token that is fed."""
    token: int | None
    """The token to feed, or None for the one that the device chose last in this slot."""
    sample: SampleRow


@attrs.frozen
class UnitResult:
    """What a unit chose. `tokens[i]` belongs to row i (one row for a prefill unit, none if it sampled nothing)."""

    tokens: tuple[int, ...]
    faulty_rows: frozenset[int] = frozenset()
    """Rows whose logits were not finite: their token means nothing (a failed check)."""


class Pending(Protocol):
    """A dispatched unit."""

    def read(self) -> UnitResult:
        """Wait for the unit and give its result. Raises what the device raised; may be called once."""
        ...


class Device(Protocol):
    """The memory of one model on one device, and the compiled programs that change it."""

    @property
    def total_pages(self) -> int:
        """Pages of the KV pool."""
        ...

    @property
    def total_slots(self) -> int:
        """Recurrent-state slots."""
        ...

    @property
    def compilations(self) -> int:
        """Programs compiled so far. Constant once `prepare` has returned."""
        ...

    def prepare(self) -> None:
        """Compile every program and allocate all memory. Blocks; called once, before the first unit."""
        ...

    def prefill(self, unit: PrefillUnit) -> Pending:
        """Dispatch one prefill chunk."""
        ...

    def decode(self, rows: tuple[DecodeRow, ...]) -> Pending:
        """Dispatch one decode round over `rows`, 1 to the number of lanes; slots are distinct."""
        ...

    def recover(self) -> bool:
        """Called after `prefill`, `decode` or `read` has raised: whether the memory is lost with that unit.

        If so, it is allocated afresh, all pages and slots are empty, and units that are still in flight must not be
        read. If not, nothing but the unit's own effects is missing. Waits for the device; raises what it raises.
        """
        ...
