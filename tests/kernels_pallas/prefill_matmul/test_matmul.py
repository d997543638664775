"""The prefill matmul against its meaning, and the meaning against float64."""

import importlib
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from kernels_pallas.prefill_matmul import Epilogue, matmul, reference
from kernels_pallas.prefill_matmul.specs import PRODUCTS, ROWS, Product
from kernels_pallas.prefill_matmul.tuning import Tiles, fitted, tiles_for
from kernels_pallas.target import Target, alias_bytes, count_kernels, lower_for_cuda, temp_bytes

SMALL = Tiles(rows=128, columns=32, stages=2, out_columns=16)


@pytest.fixture(scope="module")
def mosaic() -> ModuleType:
    """The kernel's module; jax 0.10 cannot import what it needs without a package that nothing else wants."""
    try:
        return importlib.import_module("kernels_pallas.prefill_matmul.mosaic")
    except ImportError as error:
        pytest.skip(f"no Mosaic GPU here: {error}")


def operands(t: int, n: int, k: int, dtype: Any = jnp.float16) -> tuple[jax.Array, jax.Array]:
    """Random x [t, k] and w [n, k]: sums of about one."""
    rng = np.random.default_rng(t + n + k)
    x, w = rng.standard_normal((t, k)), rng.standard_normal((n, k)) / np.sqrt(k)
    return jnp.asarray(x, dtype), jnp.asarray(w, dtype)


def meaning(
    x: jax.Array, w: jax.Array, epilogue: Epilogue, residual: jax.Array | None, shift: int
) -> NDArray[np.float64]:
    y = np.asarray(x, np.float64) @ np.asarray(w, np.float64).T
    if epilogue == "silu_product":
        gate, up = np.split(y, 2, axis=1)
        return gate / (1 + np.exp(-gate)) * up / 2**shift
    return y if residual is None else np.asarray(residual, np.float64) + y * 2**shift


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize(
    ("epilogue", "shift"), [("none", 0), ("residual_add", 0), ("residual_add", 4), ("silu_product", 4)]
)
def test_the_reference_means_what_float64_says(epilogue: Epilogue, shift: int, dtype: Any) -> None:
    x, w = operands(8, 96, 80, dtype)  # no tile cuts this; the reference takes any shape
    residual = jnp.ones((8, 96), jnp.float32) if epilogue == "residual_add" else None
    got = matmul(x, w, epilogue=epilogue, residual=residual, shift=shift, out_dtype=jnp.float32, impl="reference")
    np.testing.assert_allclose(got, meaning(x, w, epilogue, residual, shift), rtol=1e-4, atol=1e-5)


def test_float16_leaves_finite() -> None:
    x = jnp.full((2, 64), 60000.0, jnp.float16)
    assert matmul(x, x, impl="reference").tolist() == [[65504.0] * 2] * 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epilogue": "softmax"}, "softmax.*silu_product"),
        ({"epilogue": "residual_add"}, "residual belongs"),
        ({"shift": 4}, "shift belongs"),
        ({"impl": "triton"}, "there are: auto, reference, mosaic"),
        ({"w": jnp.zeros((32, 64), jnp.bfloat16)}, "of one type"),
        ({"epilogue": "residual_add", "residual": jnp.zeros((64, 16))}, r"float32 \[64, 32\]"),
    ],
)
def test_operands_that_do_not_fit(change: dict[str, Any], told: str) -> None:
    good = {"x": jnp.zeros((64, 64), jnp.float16), "w": jnp.zeros((32, 64), jnp.float16)}
    with pytest.raises(ValueError, match=told):
        matmul(**{**good, **change})


@pytest.mark.parametrize(
    ("t", "n", "k", "epilogue", "tiles"),
    [
        (64, 64, 128, "none", SMALL),  # half of the only row of tiles lies beyond T
        (
            192,
            64,
            256,
            "none",
            Tiles(rows=64, columns=32, stages=3, shared="n", out_columns=16, walk="n", walk_width=1),
        ),
        (192, 64, 128, "none", Tiles(rows=128, columns=32, stages=1, out_columns=32, in_flight=0)),
        (192, 64, 192, "none", Tiles(rows=128, columns=32, stages=2, out_columns=16, out_slots=1, cluster="t")),
        (64, 128, 128, "none", Tiles(rows=128, columns=32, stages=2, out_columns=16, cluster="n")),
        (192, 128, 128, "silu_product", SMALL),
        # Each warpgroup with gate and up rows of its own channels.
        (64, 128, 256, "silu_product", Tiles(rows=64, columns=64, depth=128, stages=2, shared="n", out_columns=16)),
    ],
)
def test_the_kernel_interpreted(mosaic: ModuleType, t: int, n: int, k: int, epilogue: Epilogue, tiles: Tiles) -> None:
    if not hasattr(mosaic.plgpu, "InterpretGPUParams"):
        pytest.skip("this jax interprets no Mosaic GPU kernels in public")
    x, w = operands(t, n, k)
    how: dict[str, Any] = {"epilogue": epilogue, "residual": None, "out_dtype": jnp.dtype(jnp.float16), "shift": 0}
    interpret = mosaic.plgpu.InterpretGPUParams(detect_races=True)
    got = mosaic.matmul(x, w, **how, tiles=tiles, interpret=interpret)
    want = reference.matmul(x, w, **how)
    np.testing.assert_allclose(np.asarray(got, np.float32), np.asarray(want, np.float32), rtol=2e-3, atol=1e-3)


def shapes(product: Product, t: int) -> list[jax.ShapeDtypeStruct]:
    x = jax.ShapeDtypeStruct((t, product.k), jnp.float16)
    w = jax.ShapeDtypeStruct((product.n, product.k), jnp.float16)
    residual = jax.ShapeDtypeStruct((t, product.n), jnp.float32)
    return [x, w, residual] if product.epilogue == "residual_add" else [x, w]


def run(x: jax.Array, w: jax.Array, residual: jax.Array | None = None, *, epilogue: Epilogue) -> jax.Array:
    return matmul(x, w, epilogue=epilogue, residual=residual, impl="mosaic")


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
def test_one_kernel_and_the_residual_in_place(mosaic: ModuleType, h200: Target, product: Product) -> None:
    step = jax.jit(run, static_argnames="epilogue", donate_argnums=(2,) if product.epilogue == "residual_add" else ())
    args = shapes(product, 2048)
    assert count_kernels(lower_for_cuda(step, *args, epilogue=product.epilogue)) == {"mosaic": 1}
    compiled = h200.compile(step, *map(h200.like, args), epilogue=product.epilogue)
    assert temp_bytes(compiled) == 0
    assert alias_bytes(compiled) == (2048 * product.n * 4 if product.epilogue == "residual_add" else 0)


@pytest.mark.parametrize("product", PRODUCTS[2:4], ids=lambda product: product.name)
def test_few_rows_compile(mosaic: ModuleType, h200: Target, product: Product) -> None:
    step = jax.jit(run, static_argnames="epilogue", donate_argnums=(2,) if product.epilogue == "residual_add" else ())
    compiled = h200.compile(step, *map(h200.like, shapes(product, 64)), epilogue=product.epilogue)
    assert temp_bytes(compiled) == 0


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
def test_every_real_shape_has_tiles_that_cut_it(product: Product) -> None:
    for t in ROWS:
        tiles = tiles_for(t, product.n, product.k, gated=product.epilogue == "silu_product", out_bytes=2)
        assert product.n % tiles.columns == 0
        assert tiles.stages >= 3


@pytest.mark.parametrize(("t", "n", "k"), [(63, 64, 64), (64, 24, 64), (64, 64, 96)])
def test_a_shape_without_tiles_is_refused(t: int, n: int, k: int) -> None:
    with pytest.raises(NotImplementedError, match=f"T={t}, N={n}, K={k}"):
        tiles_for(t, n, k, gated=False, out_bytes=2)


def test_tiles_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="warpgroup"):
        Tiles(rows=64, columns=64)  # two warpgroups cannot share 64 rows
    with pytest.raises(ValueError, match="in_flight"):
        Tiles(rows=128, columns=64, stages=1)
    assert fitted(256, 160, gated=False, out_bytes=4, out_slots=1).stages == 4
