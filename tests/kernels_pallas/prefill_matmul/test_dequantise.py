"""The dequantisation kernel against the natural planes that were packed, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.arrays import PackedMatrix
from kernels_pallas.packing import FORMATS, pack, plane_specs
from kernels_pallas.prefill_matmul import dequantise, dequantise_triton
from kernels_pallas.target import Target, temp_bytes
from tests.kernels_pallas.quant_matmul.natural import natural_planes

pytestmark = pytest.mark.filterwarnings("ignore:.*Triton backend.*:DeprecationWarning")

LAYERS = 3


def stack(matrix_format: str, n: int, k: int) -> PackedMatrix:
    packed = [pack(matrix_format, natural_planes(matrix_format, n, k, seed)) for seed in range(LAYERS)]
    return PackedMatrix(
        format=matrix_format, **{name: jnp.stack([jnp.asarray(p[name]) for p in packed]) for name in packed[0]}
    )


# Blocks of four chunks, and of what a K that is no multiple of them allows.
CASES = [(name, 32, 256) for name in FORMATS] + [("q6_g64", 16, 192)]


@pytest.mark.parametrize(("matrix_format", "n", "k"), CASES)
def test_values_are_those_of_the_reference(matrix_format: str, n: int, k: int) -> None:
    matrix, layer = stack(matrix_format, n, k), jnp.array([2], jnp.int32)
    want = dequantise(matrix, layer, impl="reference")
    got = dequantise_triton.dequantise(matrix, layer, want.dtype, interpret=True)
    np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32))


@pytest.mark.parametrize("matrix_format", FORMATS)
def test_it_compiles_for_a_stack_of_the_real_size(h200: Target, matrix_format: str) -> None:
    n, k = 34816, 5120
    planes = {name: h200.spec((64, *spec.shape), spec.dtype) for name, spec in plane_specs(matrix_format, n, k).items()}
    matrix = PackedMatrix(format=matrix_format, **planes)
    compiled = h200.compile(
        jax.jit(lambda m, layer: dequantise(m, layer, impl="triton")), matrix, h200.spec((1,), jnp.int32)
    )
    assert temp_bytes(compiled) == 0
