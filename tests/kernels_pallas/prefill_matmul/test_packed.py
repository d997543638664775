"""The prefill matmul from packed weights: the operand's PTX emulated, the kernel interpreted around a stand-in."""

import dataclasses
import importlib
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.arrays import PackedMatrix
from kernels_pallas.packing import FORMATS, pack, plane_specs
from kernels_pallas.prefill_matmul import dequantise, packed_matmul, reference
from kernels_pallas.prefill_matmul.operand_ptx import DEPTH, OUTPUTS, SUM_SCALE, operand_text, supported
from kernels_pallas.prefill_matmul.packed_tuning import fitted, packed_tiles_for
from kernels_pallas.quant_matmul import unpack_matrix
from kernels_pallas.target import Target, alias_bytes, temp_bytes
from tests.kernels_pallas.prefill_matmul.ptx import run
from tests.kernels_pallas.quant_matmul.natural import natural_planes


@pytest.fixture(scope="module")
def kernel() -> ModuleType:
    """The kernel's module; jax 0.10 cannot import what it needs without a package that nothing else wants."""
    try:
        return importlib.import_module("kernels_pallas.prefill_matmul.packed")
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
    if matrix.row_scales is not None:
        matrix = dataclasses.replace(
            matrix, row_scales=jnp.full_like(matrix.row_scales, 1 / SUM_SCALE.get(form.name, 1))
        )
    dense = dequantise(matrix, jnp.array([0], jnp.int32), impl="reference")
    bits = np.asarray(dense).view(np.uint16)
    planes = [p for p in (matrix.codes, matrix.high, matrix.scales) if p is not None]
    names = [n for n in ("codes", "high", "scales") if getattr(matrix, n) is not None]
    raw = [np.asarray(plane).reshape(-1).view(np.uint8) for plane in planes]
    memory = np.concatenate([np.pad(plane, (0, -plane.size % 16)) for plane in raw])
    starts = dict(zip(names, np.cumsum([0] + [p.size + -p.size % 16 for p in raw[:-1]]), strict=True))
    lane = np.arange(32)
    r, c = lane >> 2, lane & 3
    a_row = {
        "codes": 64,
        "high": 16 * (form.bits - 4),
        "scales": 32 if matrix_format == "nvfp4" else 16,
    }
    at = {name: starts.get(name, 0) + a_row[name] * r for name in a_row}
    inputs = [at["codes"], c, at["high"], at["scales"]]
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

    def unpack(spare: Any, form: str, unit: int, chunks: int, planes: dict[str, Any]) -> Any:
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
        spare[me] = (codes.astype(jnp.int32) - 8).astype(jnp.float16) * scales
        kernel.plgpu.commit_smem()
        return spare.at[me]

    return lambda spare: lambda *given: unpack(spare, *given)


@pytest.mark.parametrize(
    ("n", "k", "t", "epilogue", "chosen"),
    [
        (256, 512, 128, "none", {"tokens": 64, "operands": 2, "units": 2}),
        (512, 256, 64, "silu_product", {"tokens": 48, "warpgroups": 1}),
    ],
)
def test_the_kernel_interpreted(
    kernel: ModuleType, n: int, k: int, t: int, epilogue: str, chosen: dict[str, int]
) -> None:
    if not hasattr(kernel.plgpu, "InterpretGPUParams"):
        pytest.skip("this jax interprets no Mosaic GPU kernels in public")
    matrix, layer = stack("q4_g64", n, k), jnp.array([1], jnp.int32)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((t, k)) / 64, jnp.float16)
    options = {"epilogue": epilogue, "residual": None, "out_dtype": jnp.float16, "shift": 2 if n == 512 else 0}
    got = kernel.matmul(
        x,
        matrix,
        layer,
        tiles=fitted(kernel.shape_of(matrix, gated=epilogue == "silu_product", out_bytes=2), **chosen),
        operand=stand_in(kernel),
        spare=kernel.plgpu.SMEM((2, 64, DEPTH), jnp.float16, transforms=kernel._tiling(DEPTH, jnp.float16)),
        interpret=kernel.plgpu.InterpretGPUParams(),
        **options,
    )
    want = reference.matmul(x, dequantise(matrix, layer, impl="reference"), **options)
    np.testing.assert_allclose(np.asarray(got, np.float32), np.asarray(want, np.float32), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("matrix_format", FORMATS)
@pytest.mark.parametrize(
    ("n", "k", "epilogue", "t"),
    [(34816, 5120, "silu_product", 256), (5120, 17408, "residual_add", 64), (16384, 5120, "none", 1024)],
)
def test_it_compiles_for_a_stack_of_the_real_size(
    kernel: ModuleType, h200: Target, matrix_format: str, n: int, k: int, epilogue: str, t: int
) -> None:
    """In place where there is a residual, and never with a copy."""
    planes = {name: h200.spec((64, *spec.shape), spec.dtype) for name, spec in plane_specs(matrix_format, n, k).items()}
    matrix = PackedMatrix(format=matrix_format, **planes)
    dtype = jnp.bfloat16 if matrix_format == "bf16" else jnp.float16
    added = epilogue == "residual_add"
    out_dtype = jnp.dtype(jnp.float32 if added else dtype)
    tiles = packed_tiles_for(kernel.shape_of(matrix, gated=n == 34816, out_bytes=out_dtype.itemsize), t)
    options = {"epilogue": epilogue, "out_dtype": out_dtype, "shift": 0 if epilogue == "none" else 4, "tiles": tiles}

    def step(x: jax.Array, matrix: PackedMatrix, layer: jax.Array, residual: jax.Array | None) -> jax.Array:
        result: jax.Array = kernel.matmul(x, matrix, layer, residual=residual, **options)
        return result

    residual = h200.spec((t, n), jnp.float32) if added else None
    arguments = (h200.spec((t, k), dtype), matrix, h200.spec((1,), jnp.int32), residual)
    compiled = h200.compile(jax.jit(step, donate_argnums=3), *arguments)
    assert temp_bytes(compiled) == 0
    assert alias_bytes(compiled) == (4 * t * n if added else 0)


@pytest.mark.parametrize(
    ("matrix_format", "t", "unpacked"),
    [("q4_g64", 2048, False), ("q4_g64", 4096, True), ("nvfp4", 4096, False)],  # scales of rows never enter weights
)
def test_long_chunks_unpack_their_matrix_once(
    kernel: ModuleType, h200: Target, matrix_format: str, t: int, unpacked: bool
) -> None:
    n, k = 5120, 6144
    planes = {name: h200.spec((2, *spec.shape), spec.dtype) for name, spec in plane_specs(matrix_format, n, k).items()}
    arguments = (
        h200.spec((t, k), jnp.float16),
        PackedMatrix(format=matrix_format, **planes),
        h200.spec((1,), jnp.int32),
    )
    compiled = h200.compile(
        jax.jit(lambda x, matrix, layer: packed_matmul(x, matrix, layer, impl="mosaic")), *arguments
    )
    assert (temp_bytes(compiled) >= 2 * n * k) == unpacked


@pytest.mark.parametrize(("t", "n"), [(96, 128), (64, 96)])
def test_a_shape_without_tiles_is_refused(kernel: ModuleType, t: int, n: int) -> None:
    with pytest.raises(NotImplementedError):
        packed_tiles_for(kernel.shape_of(stack("q4_g64", n, 256), gated=False, out_bytes=2), t)


@pytest.mark.parametrize("matrix_format", FORMATS)
def test_the_reference_is_the_product_of_what_is_stored(matrix_format: str) -> None:
    matrix, layer = stack(matrix_format, 64, 256), jnp.array([1], jnp.int32)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((64, 256)), jnp.bfloat16)
    got = packed_matmul(x, matrix, layer, out_dtype=jnp.float32, impl="reference")
    want = np.float64(x) @ np.float64(unpack_matrix(matrix, layer)).T
    np.testing.assert_allclose(got, want, atol=2e-3 * np.abs(want).max())
