"""A device that remembers the logits row behind every token, whatever the scheduler does with it."""

from collections.abc import Sequence
from typing import TypeAlias

import attrs
import numpy as np

from ninfer.engine.device import DecodeRow, Pending, PrefillUnit, SampleRow, UnitResult
from ninfer.engine.programs import JaxDevice, JaxPending

Rows: TypeAlias = dict[tuple[int, int], set[bytes]]
"""(seed, position of the token) -> the logits rows, uint32 bits, that it was ever chosen from."""


@attrs.frozen
class RecordedUnit:
    """A unit whose logits are kept when it is read."""

    pending: JaxPending
    samples: Sequence[SampleRow]
    rows: Rows

    def read(self) -> UnitResult:
        result = self.pending.read()
        for sample, row in zip(self.samples, self.pending.read_logits(), strict=True):
            bits = np.ascontiguousarray(row, np.float32).view(np.uint32).tobytes()
            self.rows.setdefault((sample.sampling.seed, sample.position), set()).add(bits)
        return result


@attrs.define(eq=False)
class RecordingDevice:
    """A prepared `JaxDevice` of which only some pages and lanes are shown. Requests are told apart by their seeds."""

    inner: JaxDevice
    total_pages: int
    total_slots: int
    rows: Rows = attrs.field(factory=dict)

    @property
    def compilations(self) -> int:
        return self.inner.compilations

    def prepare(self) -> None:
        """It is prepared."""

    def recover(self) -> bool:
        return self.inner.recover()

    def prefill(self, unit: PrefillUnit) -> Pending:
        return RecordedUnit(self.inner.prefill(unit), [unit.sample] if unit.sample else [], self.rows)

    def decode(self, rows: tuple[DecodeRow, ...]) -> Pending:
        return RecordedUnit(self.inner.decode(rows), [row.sample for row in rows], self.rows)
