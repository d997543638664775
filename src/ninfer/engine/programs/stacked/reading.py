"""Who asks for what ahead of time in a decode round: the plan of all bytes that enter the L2 cache before their reader.

A product streams its matrix by itself; what a kernel asks for is read while it, or the one behind it, leaves the memory
idle. Sizes are measured (docs/performance/gpu_notes.md). Knows names of kernels and matrices, no arrays. Invariant: a
plan changes no value.
"""

from __future__ import annotations

from typing import Literal

import attrs

MIB = 1 << 20

Place = Literal["mixer_out", "gate_up", "up", "down", "mixer_in", "state"]
"""A matrix that is read soon: of this layer; mixer_in is that of the next layer, or the head. A gated product reads
both halves of its matrix at once: gate_up begins with the gate's rows, up in its middle. `state`: what a delta-net step
reads beside its input, of as many rows as the bytes hold; an attention layer has none."""


@attrs.frozen
class Wish:
    """So many bytes from a place on."""

    place: Place
    size_bytes: int = attrs.field(validator=attrs.validators.gt(0))


@attrs.frozen(kw_only=True)
class ReadingPlan:
    """What each kernel of a layer asks for."""

    mixer_in: tuple[Wish, ...] = ()
    delta: tuple[Wish, ...] = ()
    attend: tuple[Wish, ...] = ()
    combine: tuple[Wish, ...] = ()
    mixer_out: tuple[Wish, ...] = ()
    gate_up: tuple[Wish, ...] = ()
    down: tuple[Wish, ...] = ()


READING = ReadingPlan(
    mixer_in=(Wish("mixer_out", 8 * MIB),),
    mixer_out=(Wish("gate_up", 8 * MIB),),
    gate_up=(Wish("down", 8 * MIB),),
    down=(Wish("mixer_in", 8 * MIB),),
)
