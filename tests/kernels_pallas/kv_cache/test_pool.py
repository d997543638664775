"""Codes of keys and values, sizes of pages, and what is written where."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_pallas import kv_cache
from kernels_pallas.kv_cache import FORMATS, allocated_pages, page_bytes, zero_pool
from kernels_pallas.kv_cache.formats import decode, encode, storage_format
from kernels_pallas.kv_cache.reference import read_lane

LAYER = jnp.array([1], jnp.int32)
append_chunk = jax.jit(kv_cache.append_chunk, static_argnames="impl")
FINE = {"fp32": 1e-7, "bf16": 2**-8, "int8": 0.5 / 127, "fp8": 2**-4}
"""Greatest error of a number against the greatest of its row."""


@pytest.mark.parametrize("name", list(FORMATS))
@given(seed=st.integers(0, 1 << 20), size=st.integers(-20, 12))
@settings(max_examples=10, deadline=None)
def test_codes_come_back(name: str, seed: int, size: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((5, 256)).astype(np.float32) * 2.0**size
    back = np.asarray(decode(*encode(jnp.asarray(rows), storage_format(name))))
    assert (np.abs(back - rows).max(-1) <= FINE[name] * 1.001 * np.abs(rows).max(-1)).all()


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("fault", [np.nan, np.inf, -np.inf, 3e38, 0.0, 1e-40])
def test_stored_numbers_are_finite_whatever_comes(name: str, fault: float) -> None:
    rows = jnp.zeros((2, 256)).at[0, 3].set(fault)
    codes, scales = encode(rows, storage_format(name))
    assert np.isfinite(np.asarray(codes, np.float32)).all()
    assert scales is None or np.isfinite(np.asarray(scales)).all()
    assert np.isfinite(np.asarray(decode(codes, scales))).all()
    assert not np.asarray(decode(codes, scales))[1].any()


@pytest.mark.parametrize(("name", "per_head_token"), [("fp32", 2048), ("bf16", 1024), ("int8", 520), ("fp8", 520)])
def test_bytes_of_a_page(name: str, per_head_token: int) -> None:
    stored = page_bytes(name, layers=16, heads=4, width=256)
    assert stored == 16 * 4 * 64 * per_head_token
    pool = jax.eval_shape(lambda: zero_pool(name, layers=16, pages=3, heads=4, width=256))
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in pool.arrays()) == 3 * stored


@pytest.mark.parametrize(
    ("name", "pages", "allocated"),
    [("int8", 2047, 2047), ("int8", 2048, 4097), ("int8", 4096, 4097), ("int8", 4097, 4097), ("bf16", 3000, 3000)],
)
def test_no_one_byte_array_of_2_to_4_gib(name: str, pages: int, allocated: int) -> None:
    assert allocated_pages(name, pages, layers=16, heads=4, width=256) == allocated


@given(start=st.integers(0, 150), count=st.integers(0, 40), name=st.sampled_from(list(FORMATS)))
@settings(max_examples=15, deadline=None)
def test_a_chunk_is_written_where_it_belongs(start: int, count: int, name: str) -> None:
    rng = np.random.default_rng(start)
    key, value = jnp.asarray(rng.standard_normal((2, 40, 2, 16)), jnp.float32)
    pages = rng.permutation(7)[:4].astype(np.int32)
    before = zero_pool(name, layers=2, pages=7, heads=2, width=16)
    pool = append_chunk(key, value, before, LAYER, pages, start, count, impl="reference")
    keys, values = read_lane(pool, LAYER, pages)
    fmt = storage_format(name)
    for stored, rows in ((keys, key), (values, value)):
        np.testing.assert_array_equal(stored[start : start + count], decode(*encode(rows[:count], fmt)))
        assert not np.asarray(stored).astype(bool)[start + count :].any()
        assert not np.asarray(stored)[:start].any()


def test_names_of_formats() -> None:
    with pytest.raises(ValueError, match="int8"):
        storage_format("int7")
