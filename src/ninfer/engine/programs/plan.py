"""The packed plan: everything the host tells a program about one unit, as one int32 array.

A numpy argument costs microseconds and an array leaf more (facts on dispatch), so floats and seeds travel bit-cast
beside the integers. `pack_*` run on the host, `unpack_*` inside the compiled program; the columns are named once, here.
"""

import struct
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ninfer.engine.device import DecodeRow, PrefillUnit, SampleRow
from ninfer.engine.model.trunk import PromptChunk, Rows
from ninfer.engine.sampling.sampler import SamplerRows
from ninfer.engine.types import PAGE_TOKENS

_SAMPLER = struct.Struct("=5fqii")
"""Five floats, a seed of two words (the low one first: little-endian hosts), two integers."""
_SAMPLER_COLUMNS = _SAMPLER.size // 4
_ROW_COLUMNS = 3 + _SAMPLER_COLUMNS  # slot, position, token, sampler; then the page table
_PREFILL_COLUMNS = 4 + _SAMPLER_COLUMNS  # slot, start, count, whether to sample, sampler; then pages, then tokens
_CHOSEN_ON_DEVICE = -1


class PrefillPlan(NamedTuple):
    """A prefill plan on the device."""

    chunk: PromptChunk
    tokens: jax.Array
    """int32 [T], padded with 0"""
    samples: jax.Array
    """bool scalar: choose the token after the chunk"""
    sampler: SamplerRows
    """one row"""


class DecodePlan(NamedTuple):
    """A decode plan on the device."""

    rows: Rows
    forced: jax.Array
    """int32 [R]: the token to feed, or -1 for the one that was chosen last in the slot"""
    sampler: SamplerRows


def prefill_plan_shape(*, pages: int, tokens: int) -> tuple[int, ...]:
    """Shape of a packed prefill plan for page tables of `pages` and chunks of up to `tokens` tokens."""
    return (_PREFILL_COLUMNS + pages + tokens,)


def decode_plan_shape(*, pages: int, rows: int) -> tuple[int, ...]:
    """Shape of a packed decode plan for `rows` rows with page tables of `pages`."""
    return (rows, _ROW_COLUMNS + pages)


def pack_prefill(unit: PrefillUnit, *, pages: int, tokens: int) -> np.ndarray:
    """One prefill unit as int32 [columns]."""
    plan = np.zeros(prefill_plan_shape(pages=pages, tokens=tokens), np.int32)
    plan[:4] = (unit.slot, unit.start, len(unit.tokens), unit.sample is not None)
    if unit.sample is not None:
        plan[4:_PREFILL_COLUMNS] = _pack_sampler(unit.sample)
    _check_table(unit.pages, unit.start + len(unit.tokens) - 1)
    _fill(plan, _PREFILL_COLUMNS, unit.pages, pages, "pages")
    _fill(plan, _PREFILL_COLUMNS + pages, unit.tokens, tokens, "tokens")
    return plan


def pack_decode(rows: tuple[DecodeRow, ...], *, pages: int) -> np.ndarray:
    """Decode rows as int32 [rows, columns]."""
    plan = np.zeros(decode_plan_shape(pages=pages, rows=len(rows)), np.int32)
    for line, row in zip(plan, rows, strict=True):
        _pack_row(line, row)
        _fill(line, _ROW_COLUMNS, row.pages, pages, "pages")
    return plan


def pack_decode_page(rows: tuple[DecodeRow, ...], *, pages: int) -> np.ndarray:
    """Decode rows as int32 [rows, columns] with one page each, that of the row's position: its table is on the device.

    pages: the longest table there is.
    """
    plan = np.zeros(decode_plan_shape(pages=1, rows=len(rows)), np.int32)
    for line, row in zip(plan, rows, strict=True):
        _pack_row(line, row)
        if len(row.pages) > pages:
            raise ValueError(f"a unit has {len(row.pages)} pages, but its program has room for {pages}")
        line[_ROW_COLUMNS] = row.pages[row.position // PAGE_TOKENS]
    return plan


def unpack_prefill(plan: jax.Array, *, pages: int) -> PrefillPlan:
    """Inverse of `pack_prefill`, inside a program."""
    tokens_at = _PREFILL_COLUMNS + pages
    return PrefillPlan(
        chunk=PromptChunk(slot=plan[0], pages=plan[_PREFILL_COLUMNS:tokens_at], start=plan[1], length=plan[2]),
        tokens=plan[tokens_at:],
        samples=plan[3] != 0,
        sampler=_unpack_sampler(plan[None, 4:_PREFILL_COLUMNS]),
    )


def unpack_decode(plan: jax.Array) -> DecodePlan:
    """Inverse of `pack_decode`, inside a program."""
    return DecodePlan(
        rows=Rows(slots=plan[:, 0], pages=plan[:, _ROW_COLUMNS:], positions=plan[:, 1]),
        forced=plan[:, 2],
        sampler=_unpack_sampler(plan[:, 3:_ROW_COLUMNS]),
    )


def _pack_row(line: np.ndarray, row: DecodeRow) -> None:
    """Everything of a row but pages."""
    line[:3] = (row.slot, row.position, _CHOSEN_ON_DEVICE if row.token is None else row.token)
    line[3:_ROW_COLUMNS] = _pack_sampler(row.sample)
    _check_table(row.pages, row.position)


def _check_table(pages: tuple[int, ...], position: int) -> None:
    """A position without a page would silently fall on page 0, which is another lane's."""
    if not 0 <= position < len(pages) * PAGE_TOKENS:
        raise ValueError(f"position {position} is outside a table of {len(pages)} pages")


def _fill(plan: np.ndarray, at: int, values: tuple[int, ...], room: int, what: str) -> None:
    if len(values) > room:
        raise ValueError(f"a unit has {len(values)} {what}, but its program has room for {room}")
    plan[at : at + len(values)] = values


def _pack_sampler(sample: SampleRow) -> np.ndarray:
    sampling = sample.sampling
    packed = _SAMPLER.pack(
        sampling.temperature,
        sampling.top_p,
        sampling.min_p,
        sampling.presence_penalty,
        sampling.frequency_penalty,
        sampling.seed,
        sampling.top_k,
        sample.position,
    )
    return np.frombuffer(packed, np.int32)


def _unpack_sampler(columns: jax.Array) -> SamplerRows:
    def real(column: int) -> jax.Array:
        return lax.bitcast_convert_type(columns[:, column], jnp.float32)

    def word(column: int) -> jax.Array:
        return lax.bitcast_convert_type(columns[:, column], jnp.uint32)

    return SamplerRows(
        temperature=real(0),
        top_p=real(1),
        min_p=real(2),
        presence_penalty=real(3),
        frequency_penalty=real(4),
        seed_low=word(5),
        seed_high=word(6),
        top_k=columns[:, 7],
        position=columns[:, 8],
    )
