"""The reference against float64, its epilogues, and what the public functions refuse."""

import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.arrays import Activation, PackedMatrix
from kernels_pallas.packing import FORMATS, pack
from kernels_pallas.quant_matmul import (
    activation_dtype,
    project,
    project_gated,
    project_residual,
    start,
    unpack_matrix,
)
from tests.kernels_pallas.quant_matmul.natural import natural_planes, numbers

LAYER = jnp.array([1], jnp.int32)


def matrix_of(format: str, n: int, k: int) -> tuple[PackedMatrix, np.ndarray]:
    """A stack of two and the numbers of the second."""
    planes = [natural_planes(format, n, k, seed) for seed in (3, 4)]
    packed = [pack(format, each) for each in planes]
    stacked = {name: jnp.stack([each[name] for each in packed]) for name in packed[0]}
    return PackedMatrix(format=format, **stacked), numbers(format, planes[1])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("n", "k"), [(32, 64), (64, 512)])
def test_the_unpacked_layer_is_the_number_behind_the_codes(format: str, n: int, k: int) -> None:
    matrix, expected = matrix_of(format, n, k)
    assert (matrix.layers, matrix.n, matrix.k) == (2, n, k)
    np.testing.assert_array_equal(unpack_matrix(matrix, LAYER), expected.astype(np.float32))


@pytest.mark.parametrize("format", FORMATS)
def test_epilogues_against_float64(format: str) -> None:
    rows = 3
    matrix, weights = matrix_of(format, 64, 64)
    dtype = activation_dtype(format)
    rng = np.random.default_rng(5)
    residual = rng.standard_normal((rows, 64)).astype(np.float32)
    gains = rng.uniform(0.5, 2, (2, 64)).astype(np.float32)
    index = jnp.array([1], jnp.int32)
    x = start(jnp.asarray(residual), jnp.asarray(gains), index, out_dtype=dtype, shift=6, eps=1e-6)
    factor = 64 / np.sqrt(np.mean(residual.astype(np.float64) ** 2, axis=1, keepdims=True) + 1e-6)
    y = (np.asarray(x.values, np.float64) @ weights.T) * factor
    np.testing.assert_allclose(project(x, matrix, LAYER), y, rtol=1e-4, atol=1e-4 * np.abs(y).max())
    gated = project_gated(x, matrix, LAYER, out_dtype=jnp.float32, shift=4)
    silu = y[:, :32] / (1 + np.exp(-np.clip(y[:, :32], -500, 500))) * y[:, 32:] / 16
    np.testing.assert_allclose(gated.values, silu, rtol=1e-4, atol=1e-4 * np.abs(silu).max())
    assert (gated.squares, gated.shift) == (None, 4)
    new, following = project_residual(
        x, matrix, LAYER, jnp.asarray(residual), jnp.asarray(gains), index, out_dtype=dtype, shift=6, eps=1e-6
    )
    np.testing.assert_allclose(new, residual + y, rtol=1e-4, atol=1e-4 * np.abs(y).max())
    again = start(new, jnp.asarray(gains), index, out_dtype=dtype, shift=6, eps=1e-6)
    np.testing.assert_array_equal(following.values, again.values)
    np.testing.assert_array_equal(following.squares, again.squares)


def test_large_float16_values_are_clamped() -> None:
    residual = jnp.full((1, 64), 1e9, jnp.float32)
    x = start(residual, jnp.ones((1, 64)), jnp.zeros(1, jnp.int32), out_dtype=jnp.float16, shift=6, eps=1e-6)
    assert float(x.values.max()) == 65504.0


@pytest.mark.parametrize(
    ("values", "layer", "match"),
    [
        (jnp.zeros((1, 128), jnp.float16), LAYER, "128 columns"),
        (jnp.zeros((17, 64), jnp.float16), LAYER, "17 rows"),
        (jnp.zeros((1, 64), jnp.bfloat16), LAYER, "float16 activations"),
        (jnp.zeros((1, 64), jnp.float16), jnp.int32(1), "layer is int32"),
    ],
)
def test_what_does_not_fit_is_refused(values: jnp.ndarray, layer: jnp.ndarray, match: str) -> None:
    matrix, _ = matrix_of("q4_g64", 32, 64)
    with pytest.raises(ValueError, match=match):
        project(Activation(values=values), matrix, layer)


def test_an_unknown_implementation_names_those_that_exist() -> None:
    matrix, _ = matrix_of("q4_g64", 32, 64)
    with pytest.raises(ValueError, match="auto, reference"):
        project(Activation(values=jnp.zeros((1, 64), jnp.float16)), matrix, LAYER, impl="mosaic")
