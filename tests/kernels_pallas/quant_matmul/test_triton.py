"""The kernel in interpret mode (an emulated warp runs its assembly) against the reference; lowering of real shapes."""

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.arrays import Activation, Ahead, PackedMatrix
from kernels_pallas.packing import FORMATS, pack, plane_specs
from kernels_pallas.quant_matmul import activation_dtype, project, reference, triton
from kernels_pallas.quant_matmul.ptx import product
from kernels_pallas.quant_matmul.tuning import Config
from kernels_pallas.target import Target, alias_bytes, count_kernels, lower_for_cuda, temp_bytes
from tests.kernels_pallas.quant_matmul.natural import natural_planes
from tests.kernels_pallas.quant_matmul.warp import Warp

LAYER = jnp.array([1], jnp.int32)
EPS = 1e-6


def emulated(format: str, j: int, acc: jax.Array, *operands: jax.Array) -> jax.Array:
    """What `triton.multiply` does, on the CPU: four neighbours are one lane's registers."""
    text, _ = product(format, j)

    def run(acc: np.ndarray, *operands: np.ndarray) -> np.ndarray:
        out = np.empty_like(acc)
        for warp in range(acc.shape[0]):
            words = [np.ascontiguousarray(each[warp]).reshape(32, -1).view("<u4") for each in (acc, *operands)]
            lanes = [np.ascontiguousarray(word[:, i]) for word in words for i in range(word.shape[1])]
            out[warp] = np.stack(Warp(lanes).run(text), axis=1).reshape(-1)
        return out

    return jax.pure_callback(run, jax.ShapeDtypeStruct(acc.shape, jnp.float32), acc, *operands)


def inputs(format: str, n: int, k: int, rows: int, squares: bool) -> tuple[Activation, PackedMatrix]:
    """The first `rows` of sixteen fixed rows, and a stack of two."""
    packed = [pack(format, natural_planes(format, n, k, seed)) for seed in (3, 4)]
    matrix = PackedMatrix(format=format, **{name: jnp.stack([each[name] for each in packed]) for name in packed[0]})
    rng = np.random.default_rng(6)
    values = jnp.asarray(rng.standard_normal((16, k))[:rows] / 64, activation_dtype(format))
    parts = jnp.asarray(rng.uniform(0.5, 2, (16, k // 16))[:rows], jnp.float32) if squares else None
    return Activation(values=values, squares=parts, shift=3, eps=EPS), matrix


def run(x: Activation, matrix: PackedMatrix, epilogue: str, config: Config) -> list[jax.Array]:
    """The kernel's results in interpret mode, residual 1 and gain 2."""
    job = attrs.evolve(triton.plan(x, matrix, epilogue, 4, config, ()), multiply=emulated, on_device=False)
    rows, n = job.rows, job.n // (2 if epilogue == "gated" else 1)
    outputs = {"out": jax.ShapeDtypeStruct((rows, n), x.values.dtype if epilogue != "plain" else jnp.float32)}
    more, aliases = {}, {}
    if epilogue == "residual":
        outputs["residual_out"] = jax.ShapeDtypeStruct((rows, n), jnp.float32)
        outputs["squares_out"] = jax.ShapeDtypeStruct((rows, n // 16), jnp.float32)
        more = {"residual": jnp.ones((rows, n)), "gains": jnp.full((2, n), 2.0), "gain_index": LAYER}
        aliases = {"residual": "residual_out"}
    return triton.run(job, x, matrix, LAYER, outputs, more, aliases, (), interpret=True)


def expected(x: Activation, matrix: PackedMatrix, epilogue: str) -> list[jax.Array]:
    """The reference's, in the order of `run`."""
    if epilogue == "plain":
        return [reference.project(x, matrix, LAYER, out_dtype=jnp.float32)]
    dtype = x.values.dtype
    if epilogue == "gated":
        return [reference.project_gated(x, matrix, LAYER, out_dtype=dtype, shift=4).values]
    rows, n = x.values.shape[0], matrix.n
    ones, twos = jnp.ones((rows, n)), jnp.full((2, n), 2.0)
    residual, following = reference.project_residual(
        x, matrix, LAYER, ones, twos, LAYER, out_dtype=dtype, shift=4, eps=EPS
    )
    assert following.squares is not None
    return [following.values, residual, following.squares]


def check(format: str, epilogue: str, rows: tuple[int, ...], blocks: int, config: Config) -> None:
    """Each number of rows against the reference; the first row's bits depend on no neighbour."""
    first: list[np.ndarray] = []
    for count in rows:
        x, matrix = inputs(format, 32, blocks * 4 * FORMATS[format].chunk, count, squares=epilogue != "residual")
        got = run(x, matrix, epilogue, config)
        for mine, theirs in zip(got, expected(x, matrix, epilogue), strict=True):
            theirs = np.asarray(theirs, np.float32)
            tolerance = 1e-5 if mine.dtype == jnp.float32 else 8e-3 if format == "bf16" else 1e-3
            np.testing.assert_allclose(np.asarray(mine, np.float32), theirs, atol=tolerance * np.abs(theirs).max())
        bits = [np.asarray(each, np.float32)[0] for each in got]
        first = first or bits
        for mine, theirs in zip(bits, first, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_gives_the_references_results(format: str) -> None:
    check(format, "plain", (2,), 1, Config(warps=1))


@pytest.mark.parametrize(
    ("format", "epilogue", "rows", "config"),
    [
        ("fp8_row", "gated", (1, 9), Config(warps=2)),
        ("nvfp4", "residual", (3,), Config(warps=2)),
        ("bf16", "residual", (1, 2), Config(warps=2, tiles=2, unroll=2)),
    ],
)
def test_every_epilogue_gives_the_references_results(
    format: str, epilogue: str, rows: tuple[int, ...], config: Config
) -> None:
    check(format, epilogue, rows, 3, config)  # three blocks: no whole number for two warps


def test_blocks_loaded_together_give_the_same_bits() -> None:
    x, matrix = inputs("fp8_row", 16, 3 * 128, 1, squares=False)
    ways = [run(x, matrix, "plain", Config(warps=1, unroll=unroll))[0] for unroll in (1, 2)]
    np.testing.assert_array_equal(*ways)


def stacked(format: str, n: int, k: int, layers: int) -> PackedMatrix:
    """Shapes only."""
    specs = plane_specs(format, n, k)
    return PackedMatrix(
        format=format, **{name: jax.ShapeDtypeStruct((layers, *s.shape), s.dtype) for name, s in specs.items()}
    )


@pytest.mark.parametrize("format", ["bf16", "q5_g64", "nvfp4"])
def test_real_shapes_lower_to_one_kernel_each(format: str) -> None:
    values = jax.ShapeDtypeStruct((8, 5120), activation_dtype(format))
    x = Activation(values=values, squares=jax.ShapeDtypeStruct((8, 320), jnp.float32), shift=6, eps=EPS)
    layer = jax.ShapeDtypeStruct((1,), jnp.int32)
    big = stacked(format, 16384, 5120, 64)

    def step(x: Activation, matrix: PackedMatrix, layer: jax.Array) -> jax.Array:
        return project(x, matrix, layer, ahead=(Ahead(matrix, layer, 8 << 20),), impl="triton")

    assert count_kernels(lower_for_cuda(step, x, big, layer)) == {f"plain_{format}": 1}


def down_step(config: Config | None, rows: int):  # type: ignore[no-untyped-def]
    """A jitted residual product of the 27B model that takes its residual over, and its arguments."""
    down = stacked("nvfp4", 5120, 17408, 64)
    x = Activation(values=jax.ShapeDtypeStruct((rows, 17408), jnp.float16), shift=4)
    residual, gains = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((rows, 5120), (129, 5120)))
    layer = jax.ShapeDtypeStruct((1,), jnp.int32)

    def step(x, matrix, layer, residual, gains):  # type: ignore[no-untyped-def]
        rest = (residual, gains, layer)
        return triton.project_residual(x, matrix, layer, *rest, out_dtype=jnp.float16, shift=6, eps=EPS, config=config)

    return jax.jit(step, donate_argnums=3), (x, down, layer, residual, gains)


def test_the_residual_kernel_writes_in_place() -> None:
    step, arguments = down_step(None, 1)
    lowered = lower_for_cuda(step, *arguments)
    assert count_kernels(lowered) == {"residual_nvfp4": 1}
    assert "output_operand_alias" in lowered.as_text()


@pytest.mark.parametrize(
    ("rows", "config"),
    [(1, None), (16, None), (8, Config(ring=2, ring_rows=8)), (2, Config(warps=8, unroll=2, ring=2, ring_rows=2))],
)
def test_the_residual_kernel_assembles_without_copies(h200: Target, rows: int, config: Config | None) -> None:
    step, arguments = down_step(config, rows)
    compiled = h200.compile(step, *h200.like(arguments))
    assert alias_bytes(compiled) == 4 * 5120 * rows
    assert temp_bytes(compiled) < 1024


def test_a_shape_without_a_cut_is_refused() -> None:
    x, matrix = inputs("q4_g64", 32, 64, 1, squares=False)
    with pytest.raises(ValueError, match="no cut"):
        project(x, matrix, LAYER, impl="triton")


@pytest.mark.parametrize(
    ("format", "config"),
    [
        ("q4_g64", Config(ring=2, ring_rows=1, release=True)),
        ("q6_g64", Config(ring=1, programs=132)),
        ("bf16", Config()),
    ],
)
def test_stacks_beyond_four_gibibytes_assemble_without_copies(h200: Target, format: str, config: Config) -> None:
    matrix = stacked(format, 34816, 5120, 64)
    values, squares = ((1, 5120), activation_dtype(format)), ((1, 320), jnp.float32)
    x = Activation(values=jax.ShapeDtypeStruct(*values), squares=jax.ShapeDtypeStruct(*squares), shift=6, eps=EPS)
    layer = jax.ShapeDtypeStruct((1,), jnp.int32)

    def step(x: Activation, matrix: PackedMatrix, layer: jax.Array) -> Activation:
        ahead = (Ahead(matrix, layer, 1 << 20),)
        return triton.project_gated(x, matrix, layer, out_dtype=x.values.dtype, shift=4, ahead=ahead, config=config)

    assert temp_bytes(h200.compile(step, *h200.like((x, matrix, layer)))) == 0
