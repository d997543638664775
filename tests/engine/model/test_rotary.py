"""Which pair follows which axis, and what a rotation keeps."""

import attrs
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer.engine.model.rotary import pair_axes, rotary_tables, rotate, text_positions
from tests.engine.model.golden import WIDE, golden


@pytest.mark.parametrize(
    ("section", "axes"),
    [((3, 3, 2), [0, 1, 2, 0, 1, 2, 0, 1]), ((6, 1, 1), [0, 1, 2, 0, 0, 0, 0, 0]), ((8, 0, 0), [0] * 8)],
)
def test_axes_alternate_while_they_last(section: tuple[int, int, int], axes: list[int]) -> None:
    assert pair_axes(attrs.evolve(WIDE, mrope_section=section)).tolist() == axes


def test_the_published_section() -> None:
    config = attrs.evolve(WIDE, head_dim=256, mrope_section=(11, 11, 10))
    axes = pair_axes(config)
    assert [int((axes == axis).sum()) for axis in range(3)] == [11, 11, 10]
    assert axes[31] == 1
    assert axes[30] == 0


def test_angles_follow_their_axis() -> None:
    positions = jnp.array([[5], [7], [9]])
    cos, _ = rotary_tables(WIDE, positions)
    frequencies = 1e7 ** (-np.arange(8) / 8)
    expected = np.cos(np.array([5, 7, 9, 5, 7, 9, 5, 7]) * frequencies)
    np.testing.assert_allclose(cos[0], expected, atol=1e-5)


def test_only_the_leading_dimensions_turn_and_lengths_stay() -> None:
    config = golden().config
    x = np.random.default_rng(0).standard_normal((3, 2, config.head_dim)).astype(np.float32)
    turned = rotate(jnp.asarray(x), rotary_tables(config, text_positions(jnp.array([0, 1, 4000]))))
    np.testing.assert_array_equal(turned[0], x[0])
    np.testing.assert_array_equal(turned[..., 8:], x[..., 8:])
    np.testing.assert_allclose(jnp.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5)
