"""One request driven on a prepared device by hand: prefill, then rounds with whoever shares them, all logits kept.

No scheduler: the self-test chooses slots, pages and neighbours itself, and reads every unit before the next one.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from ninfer.engine.device import DecodeRow, PrefillUnit, SampleRow
from ninfer.engine.programs import JaxDevice
from ninfer.engine.types import Sampling


@attrs.define(kw_only=True)
class LaneProbe:
    """A request: where it is on the device, and what has come back."""

    device: JaxDevice
    slot: int
    pages: tuple[int, ...]
    prompt: tuple[int, ...]
    sampling: Sampling
    tokens: list[int] = attrs.field(factory=list)
    logits: list[np.ndarray] = attrs.field(factory=list)
    """float32 [V] behind each token"""

    def prefill(self, chunk_tokens: int) -> None:
        """All of the prompt, in units of `chunk_tokens` (a multiple of 64); chooses the first token."""
        length = len(self.prompt)
        for start in range(0, length, chunk_tokens):
            part = self.prompt[start : start + chunk_tokens]
            end = start + len(part)
            sample = SampleRow(sampling=self.sampling, position=end) if end == length else None
            unit = PrefillUnit(slot=self.slot, pages=self.pages, start=start, tokens=part, sample=sample)
            pending = self.device.prefill(unit)
            self.tokens += pending.read().tokens
            self.logits += list(pending.read_logits())

    def next_row(self) -> DecodeRow:
        """The row that feeds the newest token."""
        position = len(self.prompt) + len(self.tokens) - 1
        sample = SampleRow(sampling=self.sampling, position=position + 1)
        return DecodeRow(slot=self.slot, pages=self.pages, position=position, token=None, sample=sample)


def decode(lanes: Sequence[LaneProbe], rounds: int) -> None:
    """Rounds of all lanes together; all of them are on one device."""
    for _ in range(rounds):
        pending = lanes[0].device.decode(tuple(lane.next_row() for lane in lanes))
        for lane, token, row in zip(lanes, pending.read().tokens, pending.read_logits(), strict=True):
            lane.tokens.append(token)
            lane.logits.append(row)
