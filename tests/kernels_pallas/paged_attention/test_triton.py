"""The decode kernels: interpreted against the reference, lowered for CUDA, compiled for an H200 where possible."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.kv_cache import FORMATS, KvPool, zero_pool
from kernels_pallas.kv_cache.reference import append_chunk
from kernels_pallas.paged_attention import attend_rows, combine, reference, triton, triton_combine
from kernels_pallas.paged_attention.specs import decode_specs
from kernels_pallas.paged_attention.tuning import TUNING, DecodeTuning
from kernels_pallas.target import Target, alias_bytes, count_kernels, lower_for_cuda, missing_plugin, temp_bytes

EPS = 1e-6
PAGES, HEADS, GROUP, WIDTH, HALF = 9, 2, 3, 32, 8
COLUMNS = 2 * HEADS * (GROUP + 1) * WIDTH
LAYER = jnp.array([1], jnp.int32)
CLOSE = {"bf16": 4e-3, "int8": 1e-3, "fp8": 1e-3}

pytestmark = pytest.mark.filterwarnings("ignore:.*Triton backend.*:DeprecationWarning")


@functools.partial(jax.jit, static_argnames="tuning")
def interpreted(projected: jax.Array, pool: KvPool, *rest: jax.Array, tuning: DecodeTuning) -> tuple[jax.Array, KvPool]:
    partials, pool = triton.attend_rows(projected, pool, *rest, eps=EPS, tuning=tuning, interpret=True)
    return triton_combine.combine(partials, projected, jnp.float32, tuning=tuning, interpret=True), pool


@jax.jit
def meant(projected: jax.Array, pool: KvPool, *rest: jax.Array) -> tuple[jax.Array, KvPool]:
    partials, pool = reference.attend_rows(projected, pool, *rest, eps=EPS)
    return reference.combine(partials, projected, jnp.float32), pool


def case(name: str, lanes: list[list[int]]) -> tuple[object, ...]:
    """Arguments of a step for lanes of three pages each, filled up to their first positions with random keys."""
    rng = np.random.default_rng(len(lanes))
    positions = np.array(lanes, np.int32)
    pool = jax.jit(lambda: zero_pool(name, layers=2, pages=PAGES, heads=HEADS, width=WIDTH))()
    tables = rng.permutation(PAGES).astype(np.int32).reshape(3, 3)[: len(lanes)]
    fill = jax.jit(append_chunk)
    for table, first in zip(tables, positions[:, 0], strict=True):
        rows = rng.standard_normal((2, 192, HEADS, WIDTH)).astype(np.float32)
        pool = fill(pool, LAYER, *rows, table, 0, max(first, 0))
    angles = rng.uniform(0, 6, (positions.size, HALF))
    norms = 1 + 0.1 * rng.standard_normal((2, 2, WIDTH)).astype(np.float32)
    projected = rng.standard_normal((positions.size, COLUMNS)).astype(np.float32)
    rope = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    return projected, pool, (norms[0], norms[1]), LAYER, tables, positions.reshape(-1), *rope


@pytest.mark.parametrize(
    ("name", "lanes", "options"),
    [
        ("bf16", [[130], [-1], [64]], {}),
        ("int8", [[0], [63], [191]], {"splits": 2, "block_tokens": 32, "combine_columns": 16}),
        ("fp8", [[127], [65]], {"splits": 1}),
        ("int8", [[62, 63, 64], [0, 1, -1], [-1, -1, -1]], {}),
    ],
)
@pytest.mark.contract("KVFMT-025")
def test_the_kernels_are_the_reference(name: str, lanes: list[list[int]], options: dict[str, int]) -> None:
    arguments = case(name, lanes)
    got, pool = interpreted(*arguments, tuning=DecodeTuning(**options))
    wanted, wanted_pool = meant(*arguments)
    np.testing.assert_allclose(got, wanted, atol=CLOSE[name])
    for mine, theirs in zip(pool.arrays(), wanted_pool.arrays(), strict=True):
        np.testing.assert_allclose(np.float32(mine), np.float32(theirs), rtol=1e-6)
    for row, position in enumerate(np.array(lanes).reshape(-1)):
        assert position >= 0 or not np.asarray(got)[row].any()


def test_what_the_kernel_cannot_do_is_refused() -> None:
    arguments = list(case("bf16", [[5]]))
    arguments[1] = zero_pool("fp32", layers=2, pages=PAGES, heads=HEADS, width=WIDTH)
    with pytest.raises(NotImplementedError, match="bf16, int8, fp8"):
        attend_rows(*arguments, eps=EPS, impl="triton")


def layer_of(projected: jax.Array, pool: KvPool, *rest: jax.Array) -> tuple[jax.Array, KvPool]:
    partials, pool = attend_rows(projected, pool, *rest, eps=EPS, impl="triton")
    return combine(partials, projected, out_dtype=jnp.float16, impl="triton").values, pool


@pytest.mark.parametrize("name", list(TUNING))
def test_two_launches(name: str) -> None:
    lowered = lower_for_cuda(layer_of, *decode_specs(name, 8))
    assert count_kernels(lowered) == {"attend_rows": 1, "combine_splits": 1}


@pytest.mark.skipif(missing_plugin() is not None, reason=str(missing_plugin()))
@pytest.mark.parametrize("name", list(TUNING))
def test_the_pool_is_written_in_place(name: str) -> None:
    target, specs = Target(), decode_specs(name, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled = target.compile(jax.jit(layer_of, donate_argnums=1), *target.like(specs))
    assert alias_bytes(compiled) == sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(specs[1]))
    assert temp_bytes(compiled) < 16 << 20, "the partials and nothing else"


def test_every_stored_format_but_fp32_has_a_kernel() -> None:
    assert set(TUNING) == set(FORMATS) - {"fp32"}
