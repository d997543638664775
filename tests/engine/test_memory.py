"""Sizing the memory: what fits, what is refused and how, what a budget settles. No device."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.engine.memory import (
    MIB,
    MemoryBudget,
    MemoryNeeds,
    PoolRequest,
    TooLittleMemory,
    graph_allowance_bytes,
    plan_memory,
    program_allowance_bytes,
)

GIB = 1 << 30
NEEDS = MemoryNeeds(
    weights_bytes=4 * GIB,
    slots_bytes=300 * MIB,
    counts_bytes=2 * MIB,
    workspace_bytes=200 * MIB,
    graphs_bytes=0,
    page_bytes=4 * MIB,
)


@pytest.mark.contract("KV-004")
@pytest.mark.parametrize(
    ("have_bytes", "pages"),
    [
        (None, 1000),  # nobody knows: what was asked for
        (NEEDS.fixed_bytes + GIB + 4000 * MIB, 1000),
        (NEEDS.fixed_bytes + GIB + 3999 * MIB, 992),  # rounded down, so that the next start meets the same programs
        (NEEDS.fixed_bytes + GIB + 2000 * MIB, 496),
        (NEEDS.fixed_bytes + GIB + 40 * MIB, 10),
    ],
)
def test_an_automatic_pool_takes_what_is_left_beside_the_headroom(have_bytes: int | None, pages: int) -> None:
    pool = PoolRequest(least_pages=10, most_pages=1000, headroom_bytes=GIB)
    assert plan_memory(NEEDS, pool, have_bytes).pages == pages


@pytest.mark.parametrize(
    ("least", "most", "room", "pages"),
    [
        (10, 100, 100, 100),  # the gap is beyond what was asked for
        (10, 250, 100, 100),  # and beyond what fits
        (10, 250, 500, 401),  # a few more than asked for
        (10, 250, 401, 401),  # when just these fit
        (10, 250, 400, 199),  # or fewer, where more do not fit
        (10, 250, 260, 199),
        (250, 250, 500, 401),
        (250, 250, 260, None),
        (10, 600, 450, 448),  # beyond the gap already (rounded down as always)
    ],
)
def test_a_pool_is_never_of_a_size_that_kernels_cannot_index(
    least: int, most: int, room: int, pages: int | None
) -> None:
    needs = attrs.evolve(NEEDS, impossible_pages=range(200, 401))
    have_bytes = needs.fixed_bytes + room * needs.page_bytes
    pool = PoolRequest(least_pages=least, most_pages=most)
    if pages is None:
        with pytest.raises(TooLittleMemory, match="a pool of 250 pages needs"):
            plan_memory(needs, pool, have_bytes)
    else:
        assert plan_memory(needs, pool, have_bytes).pages == pages


@pytest.mark.parametrize(("least", "most", "headroom"), [(10, 1000, GIB), (10, 10, 0)])
def test_too_little_is_one_line_with_need_and_have(least: int, most: int, headroom: int) -> None:
    pool = PoolRequest(least_pages=least, most_pages=most, headroom_bytes=headroom)
    need = NEEDS.fixed_bytes + 40 * MIB + headroom
    with pytest.raises(TooLittleMemory) as refused:
        plan_memory(NEEDS, pool, need - 1)
    said = str(refused.value)
    assert "\n" not in said
    assert f"{need / GIB:.1f} GiB needed (weights 4.0 GiB, recurrent slots 300.0 MiB, KV pool 40.0 MiB" in said
    assert ("headroom 1.0 GiB" in said) == bool(headroom)
    assert said.endswith(f"{(need - 1) / GIB:.1f} GiB free")


@given(
    have=st.integers(0, 1 << 40),
    least=st.integers(1, 500),
    more=st.integers(0, 100_000),
    headroom=st.integers(0, 4 * GIB),
    fixed=st.integers(0, 1 << 38),
    page=st.integers(1, 1 << 24),
)
def test_a_plan_is_within_what_is_there_and_wastes_little(
    have: int, least: int, more: int, headroom: int, fixed: int, page: int
) -> None:
    needs = attrs.evolve(NEEDS, weights_bytes=fixed, page_bytes=page)
    pool = PoolRequest(least_pages=least, most_pages=least + more, headroom_bytes=headroom)
    try:
        plan = plan_memory(needs, pool, have)
    except TooLittleMemory:
        assert have < needs.fixed_bytes + least * page + headroom
        return
    assert plan.total_bytes + headroom <= have
    assert least <= plan.pages <= least + more
    unused_pages = (have - plan.total_bytes - headroom) // page
    assert plan.pages == least + more or unused_pages <= plan.pages / 31
    assert sum(size for _, size in plan.parts()) == plan.total_bytes + headroom


@pytest.mark.contract("KV-004", "D42")
def test_settling_asks_again_and_never_grows() -> None:
    """Free at start, then after weights and programs: a neighbour, or a hungrier program, makes the pool smaller."""
    start = NEEDS.fixed_bytes + GIB + 2000 * MIB
    later = start - NEEDS.weights_bytes
    answers = iter([start, later, later, 1 << 50, GIB])
    pool = PoolRequest(least_pages=10, most_pages=1000, headroom_bytes=GIB)
    budget = MemoryBudget(NEEDS, pool, lambda: next(answers))
    assert (budget.plan.pages, budget.plan.have_bytes) == (496, start)
    assert budget.settle(NEEDS.workspace_bytes) == 496
    assert budget.settle(NEEDS.workspace_bytes + 400 * MIB) == 400
    assert budget.settle(0) == 400
    with pytest.raises(TooLittleMemory, match=r"program workspace 200\.0 MiB"):
        budget.settle(NEEDS.workspace_bytes)


def test_where_nobody_knows_what_is_free_the_pool_is_what_was_asked_for() -> None:
    budget = MemoryBudget(NEEDS, PoolRequest(least_pages=1, most_pages=100), lambda: None)
    assert budget.settle(NEEDS.workspace_bytes) == 100
    assert (budget.plan.have_bytes, budget.plan.graphs_used_bytes) == (None, 0)
    assert budget.plan.table()[-1].endswith("of unknown free at start")


@pytest.mark.contract("KV-010")
def test_what_programs_took_is_told_beside_their_allowance() -> None:
    """They took 10 of 96 MiB, which are not taken off the pool again; then more than the allowance."""
    needs = attrs.evolve(NEEDS, graphs_bytes=graph_allowance_bytes(8))
    start = needs.fixed_bytes + 100 * needs.page_bytes
    for used_mib, pages in ((10, 100), (96, 100), (100, 99)):
        answers = iter([start, start - needs.weights_bytes - used_mib * MIB])
        budget = MemoryBudget(needs, PoolRequest(least_pages=1, most_pages=100), lambda: next(answers))  # noqa: B023
        assert budget.settle(needs.workspace_bytes) >= pages - 3
        assert budget.plan.graphs_used_bytes == used_mib * MIB
        assert f"({used_mib}.0 MiB used)" in budget.plan.table()[5]
        assert (budget.plan.pages == 100) == (used_mib <= 96)


def test_an_explicit_pool_is_kept_or_refused() -> None:
    have = NEEDS.fixed_bytes + 100 * 4 * MIB
    budget = MemoryBudget(NEEDS, PoolRequest(least_pages=100, most_pages=100), lambda: have)
    assert budget.plan.pages == 100
    with pytest.raises(TooLittleMemory):
        MemoryBudget(NEEDS, PoolRequest(least_pages=101, most_pages=101), lambda: have)


@pytest.mark.contract("KV-005", "KV-009")
@pytest.mark.parametrize(("executables", "allowance_mib"), [(0, 64), (1, 68), (8, 96), (14, 120)])
def test_the_graph_allowance(executables: int, allowance_mib: int) -> None:
    assert graph_allowance_bytes(executables) == allowance_mib * MIB


@pytest.mark.parametrize(
    ("decode", "prefill", "layers", "allowance_mib"),
    [(4, 3, 64, 248), (1, 3, 64, 236), (8, 3, 64, 360), (8, 5, 64, 408), (1, 1, 4, 236), (4, 3, 96, 332)],
)
def test_the_allowance_for_all_that_programs_take(decode: int, prefill: int, layers: int, allowance_mib: int) -> None:
    assert program_allowance_bytes(decode=decode, prefill=prefill, layers=layers) == allowance_mib * MIB


@given(
    each_mib=st.floats(0, 203 / 7),
    decode=st.integers(1, 8),
    prefill=st.integers(1, 8),
)
def test_the_allowance_is_an_upper_bound_of_what_was_measured(each_mib: float, decode: int, prefill: int) -> None:
    """203 MiB for seven programs of 64 layers on an H200, however they are shared between programs and all of them."""
    took_mib = (203 - 7 * each_mib) + each_mib * (decode + prefill)
    assert program_allowance_bytes(decode=decode, prefill=prefill, layers=64) >= took_mib * MIB


def test_the_table_names_every_part() -> None:
    plan = plan_memory(NEEDS, PoolRequest(least_pages=16, most_pages=16), 8 * GIB)
    assert plan.table() == (
        "weights                4.0 GiB",
        "recurrent slots      300.0 MiB",
        "KV pool               64.0 MiB  (16 pages, 1,024 tokens)",
        "sampling counts        2.0 MiB",
        "program workspace    200.0 MiB",
        "graph allowance            0 B",
        "headroom                   0 B",
        "all                    4.6 GiB  of 8.0 GiB free at start",
    )


def test_bounds_are_checked() -> None:
    with pytest.raises(ValueError, match="below least_pages"):
        PoolRequest(least_pages=2, most_pages=1)
