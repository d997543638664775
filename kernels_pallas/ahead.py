"""Asking for bytes ahead of time: what a kernel brings into the L2 cache for the next ones.

A kernel that waits for latencies leaves the memory idle. It may take parts of matrices (`Ahead`) and of other arrays
(`AheadSlice`), deal them out to its programs and let each ask for its share by one instruction a plane: for slices at
its start, since they are small and needed first, for matrices at its end. Knows nothing of which kernel follows: the
plan is the caller's. Invariants: no value depends on it; no share leaves its array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp

from kernels_pallas import overlap
from kernels_pallas.arrays import Ahead, AheadSlice, Wanted

_LINE_BYTES = 128
"""A cache line. Every plane of a matrix is a multiple of it or smaller."""

Ref = Any  # pallas refs have no public type


@attrs.frozen(kw_only=True)
class Share:
    """What each program asks for of one array; sizes are elements behind the array's first indices."""

    array: str
    """Name of the operand, [..., elements]"""
    at: tuple[tuple[str, int], ...]
    """Its first indices: operands and the elements of them"""
    early: bool
    first: int = 0
    each: int = 0
    last: int = 0
    """Where the last share begins: programs whose turn would lie behind it ask for that one again."""
    each_bytes: int = 0
    """0: the line of element 0, all that there is"""


def operands_of(ahead: Sequence[Wanted]) -> dict[str, jax.Array]:
    """The arrays that a kernel needs for `ask`, by name; they all begin with "ahead"."""
    found: dict[str, jax.Array] = {}
    for number, part in enumerate(ahead):
        if isinstance(part, AheadSlice):
            leading = len(part.at)
            found[f"ahead{number}_array"] = part.array.reshape(*part.array.shape[:leading], -1)
            found |= {f"ahead{number}_at{axis}": index for axis, (index, _) in enumerate(part.at)}
        else:
            for name, plane in _planes(part).items():
                found[f"ahead{number}_{name}"] = plane.reshape(plane.shape[0], -1)
            found[f"ahead{number}_layer"] = part.layer
    return found


def shares_of(ahead: Sequence[Wanted], programs: int) -> tuple[Share, ...]:
    """How `programs` programs divide the parts among them."""
    shares: list[Share | None] = []
    for number, part in enumerate(ahead):
        if isinstance(part, AheadSlice):
            shares.append(_share_of_slice(number, part, programs))
        else:
            shares += _shares_of_matrix(number, part, programs)
    return tuple(share for share in shares if share is not None)


def _share_of_slice(number: int, part: AheadSlice, programs: int) -> Share | None:
    itemsize = part.array.dtype.itemsize
    size_bytes = math.prod(part.array.shape[len(part.at) :]) * itemsize
    at = tuple((f"ahead{number}_at{axis}", element) for axis, (_, element) in enumerate(part.at))
    share = Share(array=f"ahead{number}_array", at=at, early=True)
    return share if size_bytes < _LINE_BYTES else _cut(share, 0, size_bytes, itemsize, programs)


def _shares_of_matrix(number: int, part: Ahead, programs: int) -> list[Share | None]:
    codes_bytes = part.matrix.codes.size * part.matrix.codes.dtype.itemsize // part.matrix.layers
    begin_bytes = min(part.first_bytes, codes_bytes)
    end_bytes = codes_bytes if part.size_bytes is None else min(begin_bytes + part.size_bytes, codes_bytes)
    shares = []
    for name, plane in _planes(part).items():
        itemsize = plane.dtype.itemsize
        plane_bytes = plane.size // plane.shape[0] * itemsize
        begin, end = (at * plane_bytes // codes_bytes for at in (begin_bytes, end_bytes))
        share = Share(array=f"ahead{number}_{name}", at=((f"ahead{number}_layer", 0),), early=False)
        shares.append(_cut(share, begin, end, itemsize, programs))
    return shares


def _cut(share: Share, begin: int, end: int, itemsize: int, programs: int) -> Share | None:
    """Bytes begin .. end, rounded down to whole lines, cut into pieces of whole lines; None where nothing is left."""
    begin, end = (at // _LINE_BYTES * _LINE_BYTES for at in (begin, end))
    each_bytes = min(-(-(end - begin) // (_LINE_BYTES * programs)) * _LINE_BYTES, end - begin)
    if each_bytes <= 0:
        return None
    return attrs.evolve(
        share,
        first=begin // itemsize,
        each=each_bytes // itemsize,
        last=(end - each_bytes) // itemsize,
        each_bytes=each_bytes,
    )


def ask(shares: Sequence[Share], refs: Mapping[str, Ref], program: jax.Array, *, early: bool = False) -> None:
    """Ask for this program's shares, those of a kernel's start or those of its end.

    `refs` holds the operands of `operands_of`, `program` counts from 0.
    """
    for share in shares:
        if share.early != early:
            continue
        indices = tuple(jnp.maximum(refs[name][element], 0) for name, element in share.at)
        if share.each_bytes:
            at = jnp.minimum(share.first + program * share.each, share.last)
            overlap.prefetch(refs[share.array], (*indices, at), share.each_bytes)
        else:
            overlap.touch(refs[share.array], (*indices, 0))


def _planes(part: Ahead) -> dict[str, jax.Array]:
    """The planes that run along K: what a row has beside them is too little to ask for."""
    matrix = part.matrix
    planes = {"codes": matrix.codes, "high": matrix.high, "scales": matrix.scales}
    return {name: plane for name, plane in planes.items() if plane is not None}
