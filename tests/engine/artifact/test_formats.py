"""Formats: what a code means, how values become codes, and that a row never depends on its neighbours."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ninfer.engine.artifact.formats import (
    BF16,
    FORMATS,
    FP8_ROW,
    FP32,
    INT8_G32,
    INT8_ROW,
    NVFP4,
    NVFP4_SEARCH,
    Q4_G64,
    Q5_G64,
    Q6_G64,
    Format,
    Shape,
)
from ninfer.engine.artifact.formats.fp8 import E4M3

EVERY_FORMAT: tuple[Format, ...] = (*FORMATS.values(), NVFP4_SEARCH)
GROUPED = (INT8_G32, Q4_G64, Q5_G64, Q6_G64)
numbers = (
    st.floats(-10000, 10000, width=32)
    | st.floats(-(2.0**-10), 2.0**-10, width=32)
    | st.sampled_from([0.0, 1.0, -1.0, 0.5])
)
matrices = arrays.arrays(np.float32, st.tuples(st.integers(1, 5), st.sampled_from([64, 128])), elements=numbers)
named = pytest.mark.parametrize("form", EVERY_FORMAT, ids=lambda form: form.name)


def normal(rows: int = 64, columns: int = 1024) -> np.ndarray:
    """Weights as they are at the start of a training."""
    return (np.random.default_rng(7).standard_normal((rows, columns)) / 70).astype(np.float32)


@named
@given(values=matrices, data=st.data())
def test_a_row_does_not_depend_on_its_neighbours(form: Format, values: np.ndarray, data: st.DataObject) -> None:
    whole = form.encode(values)
    start = data.draw(st.integers(0, len(values) - 1))
    stop = data.draw(st.integers(start + 1, len(values)))
    for plane, part, spec in zip(whole, form.encode(values[start:stop]), form.planes(values.shape), strict=True):
        np.testing.assert_array_equal(plane[start:stop], part)
        assert (plane.shape, plane.dtype) == (spec.shape, spec.dtype)
    np.testing.assert_array_equal(form.decode(whole)[start:stop], form.decode([plane[start:stop] for plane in whole]))


@named
@given(values=matrices)
def test_zeros_stay_zeros_and_signs_stay(form: Format, values: np.ndarray) -> None:
    near = form.decode(form.encode(values))
    assert near.dtype == np.float32
    assert near.shape == values.shape
    assert np.all(near * np.sign(values) >= 0)
    assert not near[values == 0].any()


@pytest.mark.parametrize(
    ("form", "least", "most"),
    [
        (BF16, 0.0016, 0.0018),
        (INT8_G32, 0.0050, 0.0057),
        (INT8_ROW, 0.0072, 0.0090),
        (Q6_G64, 0.0235, 0.0250),
        (FP8_ROW, 0.0255, 0.0275),
        (Q5_G64, 0.0485, 0.0520),
        (Q4_G64, 0.1050, 0.1100),
        (NVFP4, 0.0940, 0.0960),
        (NVFP4_SEARCH, 0.0805, 0.0835),
    ],
)
def test_relative_error_on_normal_weights(form: Format, least: float, most: float) -> None:
    """Published for one tensor: NVFP4 0.0952 by amax and 0.0812 by search; 4-bit groups 0.115, 6-bit 0.026."""
    values = normal()
    assert least < np.linalg.norm(form.decode(form.encode(values)) - values) / np.linalg.norm(values) < most


@pytest.mark.parametrize("form", GROUPED, ids=lambda form: form.name)
@given(values=matrices)
def test_integer_groups_are_the_reference_encoder(form: Format, values: np.ndarray) -> None:
    """scale = fp16(amax / qmax), at least 2**-24; codes = round-half-even(x * fp32(1 / scale)), one value at a time."""
    codes, scales = form.encode(values)
    group = values.shape[1] // scales.shape[1]
    most = {"int8_g32": 127, "q4_g64": 7, "q5_g64": 15, "q6_g64": 31}[form.name]
    least = -most if form is INT8_G32 else -most - 1
    for row, column in np.ndindex(scales.shape):
        part = values[row, column * group : (column + 1) * group]
        scale = np.float16(np.max(np.abs(part)) / np.float32(most))
        if scale == 0 and part.any():
            scale = np.float16(2.0**-24)
        assert scales[row, column] == scale
        for at, value in enumerate(part):
            exact = value * (np.float32(1) / np.float32(scale)) if scale else np.float32(0)
            assert codes[row, column * group + at] == max(least, min(most, round(float(exact))))


@pytest.mark.parametrize("form", GROUPED, ids=lambda form: form.name)
@given(values=matrices)
def test_integer_groups_are_within_half_a_step(form: Format, values: np.ndarray) -> None:
    """Except where float16 has no fitting scale: there the step is 2**-24 and its rounding counts."""
    codes, scales = form.encode(values)
    near = form.decode((codes, scales))
    step = np.repeat(scales.astype(np.float32), values.shape[1] // scales.shape[1], axis=1)
    normal_scale = step >= 2.0**-14
    assert np.all(np.abs(near - values)[normal_scale] <= (step * (0.5 + 127 * 2.0**-10))[normal_scale])


def test_a_group_too_large_for_float16_decodes_to_no_number() -> None:
    """A conversion refuses it (K6): the nearest scale would store numbers that are wrong by any factor."""
    largest = np.full((1, 64), 65504 * 7, np.float32)
    assert np.array_equal(Q4_G64.decode(Q4_G64.encode(largest)), largest)
    with np.errstate(over="ignore", invalid="ignore"):
        assert not np.isfinite(Q4_G64.decode(Q4_G64.encode(np.full((1, 64), 1e9, np.float32)))).any()


@given(values=matrices)
def test_fp8_row_is_the_nearest_code_of_the_rounded_values(values: np.ndarray) -> None:
    codes, multipliers = FP8_ROW.encode(values)
    np.testing.assert_array_equal(multipliers, multipliers.astype(ml_dtypes.bfloat16).astype(np.float32))
    every = np.arange(256, dtype=np.uint8).view(E4M3).astype(np.float64)
    every = every[np.isfinite(every)]
    rounded = values.astype(ml_dtypes.bfloat16).astype(np.float64)
    for row, multiplier in enumerate(multipliers.astype(np.float64)):
        best = np.min(np.abs(rounded[row][:, None] - every * multiplier), axis=1)
        given_codes = codes[row].view(E4M3).astype(np.float64) * multiplier
        assert np.all(np.abs(given_codes - rounded[row]) <= best * (1 + 1e-6) + 1e-37)


def test_fp8_row_past_the_largest_code_is_no_nan() -> None:
    """A multiplier rounded down to bfloat16 takes the largest value past 448."""
    values = np.linspace(0.9, 1.1, 500, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)
    near = FP8_ROW.decode(FP8_ROW.encode(values))
    assert np.all(np.abs(near - values) <= values * 2.0**-7)


@given(values=matrices)
def test_int8_row_is_within_half_a_step_of_each_row(values: np.ndarray) -> None:
    """No value moves by more than half of a 127th of its row's largest; zeros stay zeros."""
    near = INT8_ROW.decode(INT8_ROW.encode(values))
    largest = np.max(np.abs(values), axis=1, keepdims=True)
    assert np.all(np.abs(near - values) <= largest / 127 * 0.5 + largest * 1e-6 + 1e-37)


@given(values=matrices)
def test_fp32_is_exact_and_bf16_is_the_nearest(values: np.ndarray) -> None:
    np.testing.assert_array_equal(FP32.decode(FP32.encode(values)), values)
    near = BF16.decode(BF16.encode(values))
    assert np.all(np.abs(near - values) <= np.abs(values) * 2.0**-8 + 1e-38)
    np.testing.assert_array_equal(BF16.decode(BF16.encode(near)), near)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_short_sources_are_exact_in_fp32(dtype: type) -> None:
    values = np.linspace(-3, 3, 64).astype(dtype).reshape(8, 8)
    np.testing.assert_array_equal(FP32.decode(FP32.encode(values)), values.astype(np.float32))


@named
def test_a_short_source_is_its_float32_values(form: Format) -> None:
    values = normal(4, 128).astype(ml_dtypes.bfloat16)
    for plane, wide in zip(form.encode(values), form.encode(values.astype(np.float32)), strict=True):
        np.testing.assert_array_equal(plane, wide)


def test_ties_round_to_even() -> None:
    values = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8], np.float32)
    np.testing.assert_array_equal(BF16.decode(BF16.encode(values)), np.array([1, 1 + 2.0**-6], np.float32))


@pytest.mark.parametrize(
    ("form", "shape", "says"),
    [
        (INT8_ROW, (7,), "scales the rows of a matrix"),
        (FP8_ROW, (7,), "scales the rows of a matrix"),
        (INT8_G32, (7,), "int8_g32 holds matrices"),
        (NVFP4, (2, 3, 16), "nvfp4 holds matrices"),
        (INT8_G32, (2, 48), "groups of 32 columns"),
        (Q4_G64, (2, 96), "groups of 64 columns, and shape [2, 96] has 96"),
        (NVFP4, (2, 24), "groups of 16 columns"),
    ],
)
def test_shapes_that_a_format_cannot_hold(form: Format, shape: Shape, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("[", r"\[")):
        form.planes(shape)


def test_registered_formats_are_known_by_their_own_names() -> None:
    assert all(name == form.name for name, form in FORMATS.items())
    assert set(FORMATS) == {
        "fp32", "bf16", "int8_row", "fp8_row", "int8_g32", "q4_g64", "q5_g64", "q6_g64", "nvfp4"
    }  # fmt: skip
