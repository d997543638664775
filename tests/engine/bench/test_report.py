"""Rates and shares follow from times and bytes."""

import pytest

from tests.engine.bench.samples import point, report, subject


def test_a_spread_knows_its_middle_and_its_ends() -> None:
    measured = point(batch=1, context_tokens=1000, step_s=(0.004, 0.002, 0.003)).step_s
    assert (measured.least, measured.median, measured.most) == (0.002, 0.003, 0.004)


def test_bytes_of_a_step() -> None:
    """Weights once; the embedding's row, keys and values, and states there and back for each row."""
    traffic = subject().traffic
    assert traffic.weight_bytes == 1000
    assert traffic.step_bytes(batch=1, context_tokens=0) == 1000 + 10 + 2 * 50
    assert traffic.step_bytes(batch=3, context_tokens=7) == 1000 + 3 * (10 + 7 * 4 + 2 * 50)


def test_shares_are_of_the_ceilings_of_the_same_run() -> None:
    found = report()
    (measured,) = found.subjects
    assert found.ceilings.read_bytes_per_s == 1e6
    first = measured.decode[0]
    assert found.share_of_read(measured, first) == pytest.approx(measured.step_bytes(first) / 0.002 / 1e6)
    assert found.share_of_gemm(measured.prefill[0]) == pytest.approx(600 / 0.5 / found.ceilings.gemm_flops_per_s)


def test_what_a_longer_context_costs_beside_a_pure_read_of_it() -> None:
    found = report()
    cost = found.context_cost(found.subjects[0], batch=1)
    assert cost is not None
    assert (cost.short_tokens, cost.long_tokens) == (100, 500)
    assert cost.more_s == pytest.approx(0.001)
    assert cost.read_s == pytest.approx(400 * 4 / 1e6)
    assert cost.ratio == pytest.approx(0.001 / 0.0016)
    assert found.context_cost(found.subjects[0], batch=8) is None
