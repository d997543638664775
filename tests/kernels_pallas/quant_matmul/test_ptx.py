"""The inline assembly on an emulated warp, one block of each format against float64."""

import numpy as np
import pytest

from kernels_pallas.packing import FORMATS, pack
from kernels_pallas.quant_matmul import activation_dtype
from kernels_pallas.quant_matmul.ptx import OUT_SCALE, product
from tests.kernels_pallas.quant_matmul.natural import natural_planes, numbers
from tests.kernels_pallas.quant_matmul.warp import Warp

LANE = np.arange(32)


def registers(words: np.ndarray) -> list[np.ndarray]:
    """[32, n] words as n registers."""
    return [np.ascontiguousarray(words[:, i]).astype(np.uint32) for i in range(words.shape[1])]


def x_registers(x: np.ndarray, format: str, j: int) -> list[np.ndarray]:
    """What each lane loads of x for chunk j: 16 or 32 bytes of row lane / 4."""
    words = np.ascontiguousarray(x).view(np.uint32)
    column, token = LANE % 4, LANE // 4
    chunk = FORMATS[format].chunk
    starts = {64: [32 * j + 8 * column, 32 * j + 8 * column + 4], 32: [16 * j + 4 * column]}
    starts[16] = [16 * (j // 2) + 4 * column]
    return [words[token, start + i] for start in starts[chunk] for i in range(4)]


@pytest.mark.parametrize("format", FORMATS)
def test_a_block_times_eight_rows(format: str) -> None:
    form = FORMATS[format]
    k = 4 * form.chunk
    planes = natural_planes(format, 16, k, seed=9)
    packed = {name: plane[0, 0] if name != "row_scales" else plane for name, plane in pack(format, planes).items()}
    rng = np.random.default_rng(2)
    x = rng.standard_normal((8, k)).astype(activation_dtype(format))
    sums = [np.zeros(32, np.uint32) for _ in range(4)]
    for j in range(4):
        operands = [*sums, *registers(packed["codes"][j].reshape(32, 4)), *x_registers(x, format, j)]
        if form.bits in (5, 6):
            operands += registers(packed["high"][j].view("<u4").reshape(32, -1))
        if form.group == 16:
            operands += registers(packed["scales"].view("<u4").reshape(32, 2))
        elif form.group is not None:
            operands += registers(packed["scales"].reshape(8, 4)[LANE // 4])
        text, constraints = product(format, j)
        assert len(constraints.split(",")) == 4 + len(operands)
        sums = [each.view(np.uint32) for each in Warp(operands).run(text)]
    y = np.zeros((8, 16))
    for i, values in enumerate(sums):
        y[2 * (LANE % 4) + i % 2, LANE // 4 + 8 * (i // 2)] = values.view(np.float32) * OUT_SCALE[format]
    weights = numbers(format, {**planes, "row_scales": np.ones(16, np.float32)})
    expected = x.astype(np.float64) @ weights.T
    np.testing.assert_allclose(y, expected, atol=2e-6 * np.abs(expected).max())
