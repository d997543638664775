"""Asking for weights ahead of time: what a product brings into the L2 cache for the one behind it.

The programs of a product divide the part between them, and each asks for its share by one instruction a plane when it
ends. Knows nothing of which kernel follows: the plan is the caller's. Invariants: no value depends on it; no share
leaves its array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp

from kernels_pallas import overlap
from kernels_pallas.arrays import Ahead

_LINE_BYTES = 128
"""A cache line. Every plane of a matrix is a multiple of it or smaller."""

Ref = Any  # pallas refs have no public type


@attrs.frozen(kw_only=True)
class Share:
    """What each program asks for of one plane of one matrix; sizes are elements of a layer."""

    plane: str
    """Name of the operand [L, elements]"""
    layer: str
    """Name of the operand that holds the layer, int32 [1]"""
    each: int
    last: int
    """Where the last share begins: programs whose turn would lie behind it ask for that one again."""
    each_bytes: int


def operands_of(ahead: Sequence[Ahead]) -> dict[str, jax.Array]:
    """The arrays that a kernel needs for `ask`, by name; they all begin with "ahead"."""
    found: dict[str, jax.Array] = {}
    for number, part in enumerate(ahead):
        for name, plane in _planes(part).items():
            found[f"ahead{number}_{name}"] = plane.reshape(plane.shape[0], -1)
        found[f"ahead{number}_layer"] = part.layer
    return found


def shares_of(ahead: Sequence[Ahead], programs: int) -> tuple[Share, ...]:
    """How `programs` programs divide the parts among them."""
    shares = []
    for number, part in enumerate(ahead):
        codes_bytes = part.matrix.codes.size * part.matrix.codes.dtype.itemsize // part.matrix.layers
        for name, plane in _planes(part).items():
            itemsize = plane.dtype.itemsize
            plane_bytes = plane.size // plane.shape[0] * itemsize
            wanted_bytes = min(part.size_bytes, codes_bytes) * plane_bytes // codes_bytes
            lines = wanted_bytes // _LINE_BYTES
            each_bytes = min(-(-lines // programs), lines) * _LINE_BYTES
            if each_bytes:
                shares.append(
                    Share(
                        plane=f"ahead{number}_{name}",
                        layer=f"ahead{number}_layer",
                        each=each_bytes // itemsize,
                        last=(lines * _LINE_BYTES - each_bytes) // itemsize,
                        each_bytes=each_bytes,
                    )
                )
    return tuple(shares)


def ask(shares: Sequence[Share], refs: Mapping[str, Ref], program: jax.Array) -> None:
    """Ask for this program's shares; `refs` holds the operands of `operands_of`, `program` counts from 0."""
    for share in shares:
        at = jnp.minimum(program * share.each, share.last)
        overlap.prefetch(refs[share.plane], (refs[share.layer][0], at), share.each_bytes)


def _planes(part: Ahead) -> dict[str, jax.Array]:
    """The planes that run along K: what a row has beside them is too little to ask for."""
    matrix = part.matrix
    planes = {"codes": matrix.codes, "high": matrix.high, "scales": matrix.scales}
    return {name: plane for name, plane in planes.items() if plane is not None}
