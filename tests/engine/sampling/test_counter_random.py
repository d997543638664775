"""Counter-based numbers: the published generator, and nothing but the counter decides."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.engine.sampling.counter_random import Purpose, threefry_2x32, uniform
from tests.engine.sampling.reference import number, threefry

WORDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("key", "counter", "out"),
    [  # Known answers of Random123, threefry2x32 with 20 rounds.
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(key: tuple[int, int], counter: tuple[int, int], out: tuple[int, int]) -> None:
    assert threefry(key, counter) == out
    left, right = threefry_2x32(_words(key), _words(counter))
    assert (int(left[0]), int(right[0])) == out


def _words(pair: tuple[int, int]) -> tuple[jnp.ndarray, jnp.ndarray]:
    return jnp.array([pair[0]], jnp.uint32), jnp.array([pair[1]], jnp.uint32)


@settings(max_examples=30)
@given(seed=st.integers(-(2**63), 2**63 - 1), position=st.integers(0, 2**31 - 1))
def test_numbers_are_those_of_the_reference(seed: int, position: int) -> None:
    low, high = np.array([seed], np.int64).view(np.uint32)
    drawn = uniform(jnp.array([low]), jnp.array([high]), jnp.array([position], jnp.int32), Purpose.TOKEN)
    assert float(drawn[0]) == number(seed, position)


def test_numbers_are_even() -> None:
    count = 20_000
    seeds = jnp.zeros(count, jnp.uint32)
    drawn = np.asarray(uniform(seeds + 7, seeds, jnp.arange(count), Purpose.TOKEN))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    found = np.histogram(drawn, 20, (0, 1))[0]
    assert float(((found - 1000) ** 2 / 1000).sum()) < 43.8  # chi-square, 19 degrees, 0.1 %
