"""The product of few rows from packed weights: the operand's PTX emulated, the kernel interpreted around a stand-in."""

import importlib
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.arrays import CHUNK, PackedMatrix
from kernels_pallas.packing import FORMATS, pack, plane_specs
from kernels_pallas.prefill_matmul import dequantise, reference
from kernels_pallas.prefill_matmul.operand_ptx import DEPTH, OUTPUTS, operand_text, supported
from kernels_pallas.target import Target, temp_bytes
from tests.kernels_pallas.prefill_matmul.ptx import run
from tests.kernels_pallas.quant_matmul.natural import natural_planes


@pytest.fixture(scope="module")
def kernel() -> ModuleType:
    """The kernel's module; jax 0.10 cannot import what it needs without a package that nothing else wants."""
    try:
        return importlib.import_module("kernels_pallas.prefill_matmul.few_rows")
    except ImportError as error:
        pytest.skip(f"no Mosaic GPU here: {error}")


def stack(matrix_format: str, n: int, k: int, layers: int = 2) -> PackedMatrix:
    packed = [pack(matrix_format, natural_planes(matrix_format, n, k, seed)) for seed in range(layers)]
    planes = {name: jnp.stack([jnp.asarray(of_layer[name]) for of_layer in packed]) for name in packed[0]}
    return PackedMatrix(format=matrix_format, **planes)


@pytest.mark.parametrize("matrix_format", FORMATS)
def test_lanes_have_what_their_instructions_multiply(matrix_format: str) -> None:
    """Every register of every lane against the unpacked matrix, bit for bit."""
    assert supported(matrix_format)
    form = FORMATS[matrix_format]
    k = 4 * form.chunk  # one block of four chunks
    matrix = stack(matrix_format, 16, k, 1)
    dense = dequantise(matrix, jnp.array([0], jnp.int32), impl="reference")
    bits = np.asarray(dense).view(np.uint16)
    planes = [p for p in (matrix.codes, matrix.high, matrix.scales, matrix.row_scales) if p is not None]
    names = [n for n in ("codes", "high", "scales", "row_scales") if getattr(matrix, n) is not None]
    raw = [np.asarray(plane).reshape(-1).view(np.uint8) for plane in planes]
    memory = np.concatenate([np.pad(plane, (0, -plane.size % 16)) for plane in raw])
    starts = dict(zip(names, np.cumsum([0] + [p.size + -p.size % 16 for p in raw[:-1]]), strict=True))
    lane = np.arange(32)
    r, c = lane >> 2, lane & 3
    a_row = {
        "codes": 64,
        "high": 16 * (form.bits - 4),
        "scales": 32 if matrix_format == "nvfp4" else 16,
        "row_scales": 4,
    }
    at = {name: starts.get(name, 0) + a_row[name] * r for name in a_row}
    inputs = [at["codes"], c, at["high"], at["scales"], at["row_scales"]]
    for unit in range(k // DEPTH):
        registers = run(
            operand_text(matrix_format, unit, 4), memory, [np.asarray(i, np.uint32) for i in inputs], OUTPUTS
        )
        for number, got in enumerate(registers):
            first = DEPTH * unit + 16 * (number // 4) + 8 * (number // 2 % 2) + 2 * c
            row = r + 8 * (number % 2)
            want = bits[row, first].astype(np.uint32) | bits[row, first + 1].astype(np.uint32) << 16
            np.testing.assert_array_equal(got, want, err_msg=f"unit {unit}, register {number}")


def stand_in(kernel: ModuleType) -> Any:
    """An operand of q4_g64 that unpacks with jnp into shared memory: what interpretation can multiply."""

    def operand(form: str, unit: int, chunks: int, planes: dict[str, Any], spare: dict[str, Any]) -> Any:
        assert form == "q4_g64"
        me = jax.lax.axis_index("warpgroup")
        row = jax.lax.broadcasted_iota(jnp.int32, (64, DEPTH), 0)
        column = jax.lax.broadcasted_iota(jnp.int32, (64, DEPTH), 1)
        tile, upper, r = row >> 4, (row >> 3) & 1, row & 7
        lane, word = 4 * r + (column >> 4), 2 * upper + ((column >> 3) & 1)
        pair = (column >> 1) & 3
        shift = 8 * (pair & 1) + 4 * (pair >> 1) + 16 * (column & 1)
        codes = planes["codes"][...][tile, unit, 4 * lane + word] >> shift.astype(jnp.uint32) & 15
        scales = planes["scales"][...][tile, chunks * r + unit] >> (16 * upper).astype(jnp.uint32)
        scales = jax.lax.bitcast_convert_type(scales.astype(jnp.uint16), jnp.float16)
        kernel.plgpu.wgmma_wait(0)  # the last product still reads the same memory
        spare["operand"][me] = (codes.astype(jnp.int32) - 8).astype(jnp.float16) * scales
        kernel.plgpu.commit_smem()
        return spare["operand"].at[me]

    return operand


@pytest.mark.parametrize(("n", "k", "gated", "warpgroups"), [(64, 512, False, 1), (512, 256, True, 2)])
def test_the_kernel_interpreted(kernel: ModuleType, n: int, k: int, gated: bool, warpgroups: int) -> None:
    if not hasattr(kernel.plgpu, "InterpretGPUParams"):
        pytest.skip("this jax interprets no Mosaic GPU kernels in public")
    matrix, layer = stack("q4_g64", n, k), jnp.array([1], jnp.int32)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((64, k)) / 64, jnp.float16)
    spare = {"operand": kernel.plgpu.SMEM((2, 64, DEPTH), jnp.float16, transforms=kernel._tiling(DEPTH, jnp.float16))}
    got = kernel.few_rows(
        x,
        matrix,
        layer,
        gated=gated,
        out_dtype=jnp.float16,
        shift=2 if gated else 0,
        warpgroups=warpgroups,
        operand=stand_in(kernel),
        spare=spare,
        interpret=kernel.plgpu.InterpretGPUParams(),
    )
    want = reference.matmul(
        x,
        dequantise(matrix, layer, impl="reference"),
        epilogue="silu_product" if gated else "none",
        residual=None,
        out_dtype=got.dtype,
        shift=2 if gated else 0,
    )
    np.testing.assert_allclose(np.asarray(got.T, np.float32), np.asarray(want, np.float32), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("matrix_format", FORMATS)
@pytest.mark.parametrize(("n", "k", "gated", "t"), [(34816, 5120, True, 128), (5120, 17408, False, 64)])
def test_it_compiles_for_a_stack_of_the_real_size(
    kernel: ModuleType, h200: Target, matrix_format: str, n: int, k: int, gated: bool, t: int
) -> None:
    planes = {name: h200.spec((64, *spec.shape), spec.dtype) for name, spec in plane_specs(matrix_format, n, k).items()}
    matrix = PackedMatrix(format=matrix_format, **planes)
    dtype = jnp.bfloat16 if matrix_format == "bf16" else jnp.float16
    assert matrix.k == k
    assert k % (4 * CHUNK[matrix_format]) == 0

    def step(x: jax.Array, matrix: PackedMatrix, layer: jax.Array) -> jax.Array:
        result: jax.Array = kernel.few_rows(x, matrix, layer, gated=gated, out_dtype=dtype, shift=4 if gated else 0)
        return result

    compiled = h200.compile(jax.jit(step), h200.spec((t, k), dtype), matrix, h200.spec((1,), jnp.int32))
    assert temp_bytes(compiled) == 0


@pytest.mark.parametrize(("t", "n"), [(192, 128), (64, 96)])
def test_a_shape_without_tiles_is_refused(kernel: ModuleType, t: int, n: int) -> None:
    matrix = stack("q4_g64", n, 256)
    with pytest.raises(NotImplementedError):
        kernel.few_rows(
            jnp.zeros((t, 256), jnp.float16),
            matrix,
            jnp.array([0], jnp.int32),
            gated=False,
            out_dtype=jnp.float16,
            shift=0,
        )
