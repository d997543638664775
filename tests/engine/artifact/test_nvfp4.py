"""NVFP4: the code numbers, both encoders against slow ones that try everything."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ninfer.engine.artifact.formats import NVFP4, NVFP4_SEARCH
from ninfer.engine.artifact.formats.e2m1 import DECODED, codes_of, nearest
from ninfer.engine.artifact.formats.nvfp4_search import SCALES, best_scales

TOP = 6 * 448.0
values_of_groups = (
    st.floats(-TOP, TOP, width=32)
    | st.floats(-1, 1, width=32)
    | st.floats(-0.015625, 0.015625, width=32)
    | st.sampled_from([0.0, 1.0, 3.0, -6.0, TOP, 2.0**-9])
)
groups = arrays.arrays(np.float32, st.tuples(st.integers(1, 6), st.just(16)), elements=values_of_groups)


def test_the_sixteen_numbers() -> None:
    assert DECODED.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
    np.testing.assert_array_equal(codes_of(DECODED), [*range(8), 0, *range(9, 16)])


@given(arrays.arrays(np.float32, 40, elements=st.floats(-7, 7, width=32)))
def test_nearest_rounds_as_the_number_type_does(values: np.ndarray) -> None:
    """Ties to even, which the type's own conversion decides; past 6 it is 6."""
    expected = np.clip(values, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    np.testing.assert_array_equal(nearest(values), expected)


@pytest.mark.parametrize("tie", [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
def test_ties_go_to_even_codes(tie: float) -> None:
    assert codes_of(nearest(np.array([tie], np.float32)))[0] % 2 == 0


def everything_tried(grouped: np.ndarray) -> np.ndarray:
    """Bits of each group's best scale among all 126; of equals the smallest."""
    squares = np.stack([np.square(nearest(grouped / s) * s - grouped) for s in SCALES[1:]])
    errors = squares[..., 0].copy()
    for column in range(1, 16):
        errors += squares[..., column]
    return np.argmin(errors, axis=0) + 1


def start_of(grouped: np.ndarray) -> np.ndarray:
    bits = (np.max(np.abs(grouped), axis=1) / np.float32(6)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return np.where(np.any(grouped != 0, axis=1), np.maximum(bits, 1), 0).astype(np.uint8)


@given(grouped=groups)
def test_the_search_finds_what_trying_all_scales_finds(grouped: np.ndarray) -> None:
    start = start_of(grouped)
    expected = everything_tried(grouped)
    np.testing.assert_array_equal(best_scales(grouped, start), np.where(start > 0, expected, 0))


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "few numbers", "all magnitudes", "one outlier"])
def test_the_search_on_many_groups(kind: str) -> None:
    random = np.random.default_rng(3)
    values = random.standard_normal((3000, 16))
    values = {
        "normal": values * 100,
        "heavy tails": np.sign(values) * np.exp(3 * values),
        "few numbers": random.choice([0, 0.5, 1, 3, 7], values.shape),
        "all magnitudes": values * np.exp(5 * random.standard_normal((3000, 1))),
        "one outlier": np.where(np.arange(16) == 3, 700.0, values),
    }[kind]
    grouped = np.clip(values, -TOP, TOP).astype(np.float32)
    start = start_of(grouped)
    expected = everything_tried(grouped)
    np.testing.assert_array_equal(best_scales(grouped, start), np.where(start > 0, expected, 0))


@given(values=arrays.arrays(np.float32, st.tuples(st.integers(1, 3), st.just(32)), elements=values_of_groups))
def test_the_search_is_never_worse_than_amax(values: np.ndarray) -> None:
    def error(form: object) -> float:
        planes = form.encode(values)  # type: ignore[attr-defined]
        return float(np.sum((form.decode(planes).astype(np.float64) - values) ** 2))  # type: ignore[attr-defined]

    assert error(NVFP4_SEARCH) <= error(NVFP4) * (1 + 1e-5) + 1e-30


def test_the_amax_encoder_by_hand() -> None:
    """Row 0's largest is 6 * 448, so its multiplier is 1; a group of 12s has scale 2 and codes of 6."""
    values = np.zeros((2, 48), np.float32)
    values[0, 0], values[0, 16:32], values[0, 20] = -TOP, 12, 5
    codes, scales, multipliers = NVFP4.encode(values)
    assert multipliers.tolist() == [1, 0]
    assert scales.view(ml_dtypes.float8_e4m3fn).astype(float).tolist() == [[448, 2, 0], [0, 0, 0]]
    assert codes[0, 0] == 15
    assert codes[0, 16] == 7
    assert codes[0, 20] == 4  # 5 / 2 is a tie between 2 and 3
    assert not codes[1].any()


@pytest.mark.parametrize("form", [NVFP4, NVFP4_SEARCH], ids=["amax", "search"])
@pytest.mark.parametrize("size", [2.0**-126, 2.0**-90, 1.0, 2.0**120])
def test_rows_of_every_size(form: object, size: float) -> None:
    """Finite, and as good as at size 1, except that what is below 2**-100 becomes zeros."""
    values = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    near = form.decode(form.encode(values * np.float32(size)))  # type: ignore[attr-defined]
    assert np.all(np.isfinite(near))
    if size > 2.0**-100:
        at_one = form.decode(form.encode(values))  # type: ignore[attr-defined]
        np.testing.assert_array_equal(near / np.float32(size), at_one)
    else:
        assert not near.any()
