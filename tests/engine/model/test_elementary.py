"""The exponential and its relatives against float64, at the edges, and their derivatives."""

from collections.abc import Callable

import jax
import numpy as np
import pytest

from ninfer.engine.model import elementary

VALUES = np.concatenate([np.linspace(-87, 87, 20_001), np.linspace(-1, 1, 2001), [0.0, -0.0, 1e-30]]).astype(np.float32)
WIDE = VALUES.astype(np.float64)


@pytest.mark.parametrize(
    ("function", "expected", "derivative"),
    [
        (elementary.exp, np.exp(WIDE), np.exp(WIDE)),
        (elementary.sigmoid, 1 / (1 + np.exp(-WIDE)), np.exp(-WIDE) / (1 + np.exp(-WIDE)) ** 2),
        (elementary.softplus, np.logaddexp(WIDE, 0), 1 / (1 + np.exp(-WIDE))),
    ],
)
def test_values_and_derivatives(
    function: Callable[[jax.Array], jax.Array], expected: np.ndarray, derivative: np.ndarray
) -> None:
    value, slope = jax.jit(lambda x: jax.jvp(function, (x,), (np.ones_like(VALUES),)))(VALUES)
    np.testing.assert_allclose(value, expected, rtol=4e-7, atol=1e-37)
    np.testing.assert_allclose(slope, derivative, rtol=1e-5, atol=1e-7)


def test_edges() -> None:
    edges = np.array([-np.inf, -1e30, -88.0, 89.0, np.inf, np.nan], np.float32)
    value = np.asarray(jax.jit(elementary.exp)(edges))
    assert value[:3].tolist() == [0, 0, 0]
    assert np.isfinite(value[3:5]).all()
    assert value[3] > 8e37
    assert np.isnan(value[5])
    assert np.asarray(elementary.sigmoid(edges))[[0, 1, 3, 4]].tolist() == [pytest.approx(0)] * 2 + [1, 1]
