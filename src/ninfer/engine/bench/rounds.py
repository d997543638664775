"""Times of decode rounds and prompts on a device, taken as the worker drives it: one unit is dispatched before the
one in front of it is read, so that the host's work hides behind the device's.

Knows the device port and a clock; no model. Tables of pages are disjoint, so that no row reads what another has just
brought into the cache. Keys and values that no prefill has written are zeros: a read of them takes as long.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import attrs

from ninfer.engine.bench.report import DecodePoint, PrefillPoint, Spread
from ninfer.engine.cache import pages_for
from ninfer.engine.device import DecodeRow, Device, Pending, PrefillUnit, SampleRow
from ninfer.engine.types import PAGE_TOKENS, Sampling

Clock: TypeAlias = Callable[[], float]
"""Seconds, from anywhere."""

_GREEDY = Sampling(temperature=0)
_FIRST_TOKEN = 1


@attrs.frozen(kw_only=True)
class Timer:
    """How often something is measured, on which device and by which clock."""

    device: Device
    clock: Clock
    runs: int = attrs.field(validator=attrs.validators.ge(1))
    steps: int = attrs.field(validator=attrs.validators.ge(1))
    """Decode rounds of a run."""
    used_tokens: int = attrs.field(validator=attrs.validators.ge(2))

    def decode(self, *, batch: int, context_tokens: int) -> DecodePoint:
        """Rounds of `batch` rows at the last `steps` positions of a context; one run before the others warms up."""
        seats = self.take_seats(batch, context_tokens)
        times, faulty = [], 0
        for run in range(self.runs + 1):
            begin_s = self.clock()
            faulty += self.run_rounds(seats, context_tokens)
            if run:
                times.append((self.clock() - begin_s) / self.steps)
        return DecodePoint(
            batch=batch,
            context_tokens=context_tokens,
            steps=self.steps,
            step_s=Spread(tuple(times)),
            faulty_rounds=faulty,
        )

    def take_seats(self, batch: int, context_tokens: int) -> tuple[tuple[int, ...], ...]:
        """Page tables of `batch` rows, made known to the device by a short prompt in each slot."""
        if context_tokens < self.steps + PAGE_TOKENS:
            raise ValueError(f"context_tokens={context_tokens} has no room for a prompt and {self.steps} rounds")
        pages = pages_for(context_tokens)
        seats = tuple(tuple(range(row * pages, (row + 1) * pages)) for row in range(batch))
        prompt = tuple((7 * index + 1) % self.used_tokens for index in range(PAGE_TOKENS))
        sample = SampleRow(sampling=_GREEDY, position=PAGE_TOKENS)
        for slot, table in enumerate(seats):
            unit = PrefillUnit(slot=slot, pages=table, start=0, tokens=prompt, sample=sample)
            self.device.prefill(unit).read()
        return seats

    def run_rounds(self, seats: tuple[tuple[int, ...], ...], context_tokens: int) -> int:
        """The rounds of one run; how many of them had faulty rows."""
        return sum(bool(pending.read().faulty_rows) for pending in _ahead(self._rounds(seats, context_tokens)))

    def _rounds(self, seats: tuple[tuple[int, ...], ...], context_tokens: int) -> Iterator[Pending]:
        for step in range(self.steps):
            position = context_tokens - self.steps + step
            sample = SampleRow(sampling=_GREEDY, position=position + 1)
            yield self.device.decode(
                tuple(
                    DecodeRow(
                        slot=slot,
                        pages=table,
                        position=position,
                        token=None if step else _FIRST_TOKEN,
                        sample=sample,
                    )
                    for slot, table in enumerate(seats)
                )
            )

    def prefill(self, *, tokens: int, chunk_tokens: int, flops: int) -> PrefillPoint:
        """Prompts of `tokens` in units of `chunk_tokens`; one run before the others warms up."""
        times, faulty = [], False
        for run in range(self.runs + 1):
            begin_s = self.clock()
            faulty |= self.run_prompt(tokens, chunk_tokens)
            if run:
                times.append(self.clock() - begin_s)
        return PrefillPoint(
            tokens=tokens, chunk_tokens=chunk_tokens, prompt_s=Spread(tuple(times)), flops=flops, faulty=faulty
        )

    def run_prompt(self, tokens: int, chunk_tokens: int) -> bool:
        """One prompt; whether its logits were faulty."""
        faulty = [bool(pending.read().faulty_rows) for pending in _ahead(self._units(tokens, chunk_tokens))]
        return any(faulty)

    def _units(self, tokens: int, chunk_tokens: int) -> Iterator[Pending]:
        pages = tuple(range(pages_for(tokens)))
        prompt = tuple((31 * index + 1) % self.used_tokens for index in range(tokens))
        for start in range(0, tokens, chunk_tokens):
            last = start + chunk_tokens >= tokens
            yield self.device.prefill(
                PrefillUnit(
                    slot=0,
                    pages=pages,
                    start=start,
                    tokens=prompt[start : start + chunk_tokens],
                    sample=SampleRow(sampling=_GREEDY, position=tokens) if last else None,
                )
            )


def _ahead(units: Iterator[Pending]) -> Iterator[Pending]:
    """Each unit once the next one has been dispatched."""
    waiting: Pending | None = None
    for unit in units:
        if waiting is not None:
            yield waiting
        waiting = unit
    if waiting is not None:
        yield waiting
