"""Sums and products: right, differentiable, and the same bits whatever else is in the batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer.engine.model.reduce import linear, tree_sum
from tests.engine.model.golden import bits


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 70, 96])
def test_tree_sum_is_a_sum(length: int) -> None:
    x = np.random.default_rng(length).standard_normal((3, length, length)).astype(np.float32)
    last, middle = jax.jit(lambda x: (tree_sum(x), tree_sum(x, axis=-2)))(x)
    np.testing.assert_allclose(last, x.astype(np.float64).sum(-1), atol=1e-5)
    np.testing.assert_allclose(middle, x.astype(np.float64).sum(-2), atol=1e-5)


def test_the_derivative_of_a_tree_sum_is_that_of_a_sum() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    gradient = jax.jit(jax.grad(lambda x: (tree_sum(x) ** 2).sum()))(x)
    np.testing.assert_array_equal(gradient, np.broadcast_to([[6.0], [24.0]], (2, 3)))


@pytest.mark.parametrize(("width", "outputs"), [(512, 96), (512, 2048), (64, 6), (1024, 320)])
def test_rows_do_not_see_each_other(width: int, outputs: int) -> None:
    rng = np.random.default_rng(width)
    rows = rng.standard_normal((64, width)).astype(np.float32)
    weight = jnp.asarray(rng.standard_normal((outputs, width)).astype(np.float32))
    product = jax.jit(lambda x: (linear(x, weight), tree_sum(x * x)))
    whole = [bits(part) for part in product(rows)]
    for count in (1, 2, 3, 7, 8, 9, 33):
        for part, expected in zip(product(rows[64 - count :]), whole, strict=True):
            np.testing.assert_array_equal(bits(part), expected[64 - count :])
