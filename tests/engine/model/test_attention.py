"""Paged attention in both serving forms against float64 numpy, and what must not change a bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.engine.model import attention
from ninfer.engine.model.attention import Projected
from ninfer.engine.types import PAGE_TOKENS
from tests.engine.model.golden import bits

POOL, TABLE, GROUPS, GROUP, WIDTH = 9, 4, 2, 3, 16
prompt_form = jax.jit(attention.attend_prompt)
rows_form = jax.jit(attention.attend_rows)


def oracle(query: np.ndarray, key: np.ndarray, value: np.ndarray, position: int) -> np.ndarray:
    """query [kv, g, d] at `position` against key and value [n, kv, d], float64."""
    scores = np.einsum("kgd,ckd->kgc", query.astype(np.float64), key[: position + 1].astype(np.float64))
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return np.einsum("kgc,ckd->kgd", shares, value[: position + 1].astype(np.float64))


def pools(seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    keys, values = rng.standard_normal((2, POOL, PAGE_TOKENS, GROUPS, WIDTH)).astype(np.float32)
    return keys, values, rng


def lane(pool: np.ndarray, pages: np.ndarray) -> np.ndarray:
    return pool[pages].reshape(-1, GROUPS, WIDTH)


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 30), start=st.integers(0, 120), count=st.integers(1, 128))
def test_a_prompt_chunk(seed: int, start: int, count: int) -> None:
    keys, values, rng = pools(seed)
    pages = rng.permutation(POOL)[:TABLE].astype(np.int32)
    query = rng.standard_normal((128, GROUPS, GROUP, WIDTH)).astype(np.float32)
    stale = (np.arange(TABLE * PAGE_TOKENS) >= start + count).reshape(TABLE, PAGE_TOKENS)
    keys[pages[:, None], np.arange(PAGE_TOKENS)] = np.where(stale[..., None, None], np.nan, keys[pages])
    values[pages[:, None], np.arange(PAGE_TOKENS)] = np.where(stale[..., None, None], np.nan, values[pages])
    out = prompt_form(query, keys, values, pages, start, count)
    for row in {0, count // 2, count - 1}:
        expected = oracle(query[row], lane(keys, pages), lane(values, pages), start + row)
        np.testing.assert_allclose(out[row], expected, atol=1e-5)


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 30), positions=st.lists(st.integers(0, 255), min_size=3, max_size=3))
def test_rows_of_several_lanes(seed: int, positions: list[int]) -> None:
    keys, values, rng = pools(seed)
    pages = np.stack([rng.permutation(POOL)[:TABLE] for _ in positions]).astype(np.int32)
    query = rng.standard_normal((3, GROUPS, GROUP, WIDTH)).astype(np.float32)
    out = rows_form(query, keys, values, pages, np.array(positions, np.int32))
    for row, position in enumerate(positions):
        expected = oracle(query[row], lane(keys, pages[row]), lane(values, pages[row]), position)
        np.testing.assert_allclose(out[row], expected, atol=1e-5)


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 30), position=st.integers(0, 255), other=st.integers(0, 255))
def test_a_neighbour_changes_no_bit(seed: int, position: int, other: int) -> None:
    """The longest lane decides how many pages are walked; pages of a lane may lie anywhere."""
    keys, values, rng = pools(seed)
    pages = np.stack([rng.permutation(POOL)[:TABLE] for _ in range(2)]).astype(np.int32)
    query = rng.standard_normal((2, GROUPS, GROUP, WIDTH)).astype(np.float32)
    alone = rows_form(query, keys, values, pages, np.array([position, position], np.int32))
    moved = rng.permutation(POOL)
    elsewhere, positions = np.argsort(moved)[pages], np.array([position, other], np.int32)
    beside = rows_form(query, keys[moved], values[moved], elsewhere, positions)
    np.testing.assert_array_equal(bits(alone[0]), bits(beside[0]))


@pytest.mark.parametrize(("groups", "group", "width"), [(2, 3, 64), (1, 1, 64), (3, 1, 16), (4, 6, 256)])
def test_a_row_alone_has_the_bits_that_it_has_among_eight(groups: int, group: int, width: int) -> None:
    rng = np.random.default_rng(width)
    keys, values = rng.standard_normal((2, 8 * TABLE, PAGE_TOKENS, groups, width)).astype(np.float32)
    query = rng.standard_normal((8, groups, group, width)).astype(np.float32)
    pages = rng.permutation(8 * TABLE).astype(np.int32).reshape(8, TABLE)
    positions = rng.integers(0, TABLE * PAGE_TOKENS, 8).astype(np.int32)
    whole = rows_form(query, keys, values, pages, positions)
    for count in (1, 2, 3):
        part = rows_form(query[:count], keys, values, pages[:count], positions[:count])
        np.testing.assert_array_equal(bits(part), bits(whole)[:count])


def test_a_whole_sequence() -> None:
    rng = np.random.default_rng(0)
    query = rng.standard_normal((2, 70, GROUPS, GROUP, WIDTH)).astype(np.float32)
    key, value = rng.standard_normal((2, 2, 70, GROUPS, WIDTH)).astype(np.float32)
    out = attention.attend_sequence(Projected(*map(jnp.asarray, (query, key, value, query))))
    for row in (0, 1, 69):
        np.testing.assert_allclose(out[1, row], oracle(query[1, row], key[1], value[1], row), atol=1e-5)
