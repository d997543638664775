"""Drive a device as the worker does, for tests: prefill a prompt, then decode, keeping the logits."""

from collections.abc import Sequence

import attrs
import numpy as np

from ninfer.engine.device import DecodeRow, PrefillUnit, SampleRow
from ninfer.engine.programs import JaxDevice
from ninfer.engine.types import PAGE_TOKENS, Sampling

GREEDY = Sampling(temperature=0)


@attrs.define
class Lane:
    """One request on the device: its place, and what came back."""

    device: JaxDevice
    slot: int
    pages: tuple[int, ...]
    prompt: tuple[int, ...]
    sampling: Sampling = GREEDY
    tokens: list[int] = attrs.field(factory=list)
    logits: list[np.ndarray] = attrs.field(factory=list)

    def prefill(self, chunk_tokens: int) -> None:
        """All of the prompt in units of `chunk_tokens`; the last one samples."""
        length = len(self.prompt)
        for start in range(0, length, chunk_tokens):
            part = self.prompt[start : start + chunk_tokens]
            last = start + chunk_tokens >= length
            sample = SampleRow(sampling=self.sampling, position=length) if last else None
            unit = PrefillUnit(slot=self.slot, pages=self.pages, start=start, tokens=part, sample=sample)
            pending = self.device.prefill(unit)
            if last:
                self.tokens += pending.read().tokens
                self.logits.append(pending.read_logits()[0])
            else:
                assert pending.read().tokens == ()

    def row(self, token: int | None = None) -> DecodeRow:
        """The row that feeds the newest token, or `token` in its place."""
        position = len(self.prompt) + len(self.tokens) - 1
        sample = SampleRow(sampling=self.sampling, position=position + 1)
        return DecodeRow(slot=self.slot, pages=self.pages, position=position, token=token, sample=sample)


def decode(lanes: Sequence[Lane], steps: int) -> None:
    """Rounds of all lanes together; tokens stay on the device between them."""
    for _ in range(steps):
        pending = lanes[0].device.decode(tuple(lane.row() for lane in lanes))
        result = pending.read()
        assert not result.faulty_rows
        for lane, token, row in zip(lanes, result.tokens, pending.read_logits(), strict=True):
            lane.tokens.append(token)
            lane.logits.append(row)


def pages_for(tokens: int, order: Sequence[int]) -> tuple[int, ...]:
    """Enough pages for `tokens` tokens, in the given order of the pool."""
    return tuple(int(page) for page in order[: -(-tokens // PAGE_TOKENS)])
