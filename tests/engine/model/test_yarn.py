"""YaRN against a float64 reference written from the paper, and what factor 1 must leave alone."""

import math

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.rotary import rotary_tables, text_positions
from ninfer.engine.model.yarn import attention_scale, stretched_frequencies
from tests.engine.model.golden import WIDE, bits, golden

PUBLISHED = attrs.evolve(
    WIDE, head_dim=256, mrope_section=(11, 11, 10), max_position_embeddings=262_144, rope_theta=1e7
)
"""The rotary numbers of the published models: 64 of 256 dimensions rotate."""


def stretched(config: TextConfig, factor: float) -> TextConfig:
    return attrs.evolve(config, rope_yarn_factor=factor)


def reference(config: TextConfig, factor: float) -> np.ndarray:
    """Section 3.2 of the paper, pair by pair: r turns in the native context, gamma from the dimensions of 32 and 1."""
    dims, native, theta = config.rotary_dims, config.max_position_embeddings, config.rope_theta

    def dimension(turns: float) -> float:
        return dims * math.log(native / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(dimension(32)), 0), min(math.ceil(dimension(1)), dims - 1)
    found = []
    for pair in range(dims // 2):
        own = 1.0 / theta ** (2 * pair / dims)
        share = min(max((pair - low) / (high - low), 0.0), 1.0)
        found.append(own / factor * share + own * (1 - share))
    return np.array(found)


@pytest.mark.contract("YARN-002")
@pytest.mark.parametrize("factor", [1.5, 2.0, 3.7, 4.0])
@pytest.mark.parametrize("config", [PUBLISHED, WIDE, golden().config], ids=["published", "wide", "golden"])
def test_frequencies_and_tables_are_the_reference_s(config: TextConfig, factor: float) -> None:
    ours = stretched(config, factor)
    wanted = reference(config, factor)
    np.testing.assert_allclose(stretched_frequencies(ours), wanted, rtol=1e-7)
    positions = np.array([0, 1, 63, 4000])
    cos, sin = rotary_tables(ours, text_positions(jnp.asarray(positions)))
    scale = 0.1 * math.log(factor) + 1
    angles = positions[:, None] * wanted
    np.testing.assert_allclose(cos, scale * np.cos(angles), atol=5e-4)  # float32 angles at 4,000 radians
    np.testing.assert_allclose(sin, scale * np.sin(angles), atol=5e-4)


def test_fast_pairs_stay_and_slow_pairs_are_stretched_whole() -> None:
    """The published numbers at factor 4: the first pairs turn as before, the last ones four times slower."""
    native = 1e7 ** (-np.arange(32) / 32)
    shares = native / stretched_frequencies(stretched(PUBLISHED, 4.0)).astype(np.float64)
    np.testing.assert_allclose(shares[:14], 1.0, rtol=1e-6)
    np.testing.assert_allclose(shares[22:], 4.0, rtol=1e-6)
    assert (np.diff(shares) > -1e-6).all()


def test_a_native_context_of_one_turn_has_no_ramp() -> None:
    """All pairs are slow: everything is stretched, and nothing divides by zero."""
    short = stretched(attrs.evolve(WIDE, max_position_embeddings=6), 2.0)
    frequencies = stretched_frequencies(short)
    assert np.isfinite(frequencies).all()
    np.testing.assert_allclose(frequencies[1:], reference(WIDE, 1.0)[1:] / 2, rtol=1e-6)


@pytest.mark.contract("YARN-002")
def test_factor_1_changes_no_bit() -> None:
    """Not the tables, and not the program: the same operations are traced."""
    positions = text_positions(jnp.arange(0, 4096, 7))
    config = golden().config
    exponents = np.arange(0, config.rotary_dims, 2, dtype=np.float32) / np.float32(config.rotary_dims)
    own = (1.0 / np.float32(config.rope_theta) ** exponents).astype(np.float32)
    angles = positions[0][:, None].astype(jnp.float32) * own
    cos, sin = rotary_tables(stretched(config, 1.0), positions)
    np.testing.assert_array_equal(bits(cos), bits(jnp.cos(angles)))
    np.testing.assert_array_equal(bits(sin), bits(jnp.sin(angles)))
    traced = [
        str(jax.make_jaxpr(lambda p, c=c: rotary_tables(c, p))(positions)) for c in (config, stretched(config, 1))
    ]
    assert traced[0] == traced[1]


@given(factor=st.floats(1.0, 4.0), seen=st.integers(0, 1 << 20))
def test_a_position_turns_no_further_than_before(factor: float, seen: int) -> None:
    native = reference(PUBLISHED, 1.0)
    ours = stretched_frequencies(stretched(PUBLISHED, factor)) if factor > 1 else native
    assert (ours <= native * (1 + 1e-6)).all()
    assert (ours >= native / factor * (1 - 1e-6)).all()
    assert attention_scale(factor) >= 1.0


@pytest.mark.parametrize("factor", [0.99, 4.01, float("nan"), float("inf"), -2.0])
def test_other_factors_are_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="rope_yarn_factor"):
        stretched(WIDE, factor)


@pytest.mark.parametrize(("factor", "ceiling"), [(1.0, 4096), (1.5, 6144), (4.0, 16384), (1.0001, 4096)])
def test_the_ceiling(factor: float, ceiling: int) -> None:
    ours = stretched(WIDE, factor)
    assert ours.ceiling_tokens == ceiling
    assert ours.max_position_embeddings == 4096
