"""Plans survive packing, on the host and inside a program."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.engine.device import DecodeRow, PrefillUnit, SampleRow
from ninfer.engine.programs.plan import (
    pack_decode,
    pack_prefill,
    prefill_plan_shape,
    unpack_decode,
    unpack_prefill,
)
from ninfer.engine.sampling.sampler import SamplerRows
from ninfer.engine.types import Sampling

PAGES, TOKENS = 5, 128
fractions = st.floats(0, 1, width=32)
penalties = st.floats(-2, 2, width=32)
samples = st.builds(
    SampleRow,
    sampling=st.builds(
        Sampling,
        temperature=st.floats(0, 2, width=32),
        top_k=st.integers(0, 20),
        top_p=fractions,
        min_p=fractions,
        presence_penalty=penalties,
        frequency_penalty=penalties,
        seed=st.integers(-(2**63), 2**63 - 1),
    ),
    position=st.integers(0, 2**31 - 1),
)
tables = st.lists(st.integers(0, 1000), min_size=3, max_size=PAGES).map(tuple)
decode_rows = st.builds(
    DecodeRow,
    slot=st.integers(0, 7),
    pages=tables,
    position=st.integers(0, 191),
    token=st.none() | st.integers(0, 300),
    sample=samples,
)


def check_sampler(found: SamplerRows, row: int, sample: SampleRow) -> None:
    sampling = sample.sampling
    for name in ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty"):
        assert np.asarray(getattr(found, name))[row] == getattr(sampling, name)
    seed = (int(found.seed_high[row]) << 32) | int(found.seed_low[row])
    assert seed == sampling.seed & ((1 << 64) - 1)
    assert int(found.position[row]) == sample.position


@settings(max_examples=20)
@given(rows=st.lists(decode_rows, min_size=2, max_size=2).map(tuple))
def test_decode_rows(rows: tuple[DecodeRow, ...]) -> None:
    plan = jax.jit(unpack_decode)(pack_decode(rows, pages=PAGES))
    for index, row in enumerate(rows):
        assert int(plan.rows.slots[index]) == row.slot
        assert int(plan.rows.positions[index]) == row.position
        assert int(plan.forced[index]) == (-1 if row.token is None else row.token)
        assert tuple(np.asarray(plan.rows.pages)[index, : len(row.pages)].tolist()) == row.pages
        check_sampler(plan.sampler, index, row.sample)


@settings(max_examples=20)
@given(
    unit=st.builds(
        PrefillUnit,
        slot=st.integers(0, 7),
        pages=tables,
        start=st.sampled_from([0, 64]),
        tokens=st.lists(st.integers(0, 300), min_size=1, max_size=TOKENS).map(tuple),
        sample=st.none() | samples,
    )
)
def test_prefill_units(unit: PrefillUnit) -> None:
    packed = pack_prefill(unit, pages=PAGES, tokens=TOKENS)
    assert packed.shape == prefill_plan_shape(pages=PAGES, tokens=TOKENS)
    plan = jax.jit(lambda plan: unpack_prefill(plan, pages=PAGES))(packed)
    assert (int(plan.chunk.slot), int(plan.chunk.start)) == (unit.slot, unit.start)
    assert tuple(np.asarray(plan.tokens)[: int(plan.chunk.length)].tolist()) == unit.tokens
    assert tuple(np.asarray(plan.chunk.pages)[: len(unit.pages)].tolist()) == unit.pages
    assert bool(plan.samples) == (unit.sample is not None)
    if unit.sample is not None:
        check_sampler(plan.sampler, 0, unit.sample)


SAMPLE = SampleRow(sampling=Sampling(temperature=0), position=0)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (DecodeRow(slot=0, pages=(1,), position=64, token=1, sample=SAMPLE), "position 64 is outside a table of 1"),
        (DecodeRow(slot=0, pages=(), position=0, token=1, sample=SAMPLE), "outside a table of 0 pages"),
        (DecodeRow(slot=0, pages=(1,) * 6, position=0, token=1, sample=SAMPLE), "6 pages, but .* room for 5"),
    ],
)
def test_what_would_land_on_foreign_memory_is_refused(row: DecodeRow, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        pack_decode((row,), pages=PAGES)
