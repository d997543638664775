"""Who asks for what ahead of time in a decode round: the plan of all bytes that enter the L2 cache before their reader.

A product streams its matrix by itself; what the one in front asks for is read while a mixer between them leaves the
memory idle. Sizes are measured (docs/performance/gpu_notes.md). Knows names of products, no arrays. Invariant: a plan
changes no value.
"""

from __future__ import annotations

from typing import Literal

import attrs

MIB = 1 << 20

Place = Literal["mixer_out", "gate_up", "down", "mixer_in"]
"""A matrix that is read soon: of this layer; mixer_in is that of the next layer, or the head."""


@attrs.frozen
class Wish:
    """So many bytes of a matrix, from its beginning."""

    place: Place
    size_bytes: int = attrs.field(validator=attrs.validators.gt(0))


@attrs.frozen(kw_only=True)
class ReadingPlan:
    """What each product of a layer asks for."""

    mixer_in: tuple[Wish, ...] = ()
    mixer_out: tuple[Wish, ...] = ()
    gate_up: tuple[Wish, ...] = ()
    down: tuple[Wish, ...] = ()


READING = ReadingPlan(
    mixer_in=(Wish("mixer_out", 8 * MIB),),
    mixer_out=(Wish("gate_up", 8 * MIB),),
    down=(Wish("mixer_in", 8 * MIB),),
)
"""Gate and up ask for nothing: their last programs still fill the memory."""
