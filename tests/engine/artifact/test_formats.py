"""Formats and layouts: what goes in comes out, piece by piece or at once, for formats with several planes too."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ninfer.engine.artifact.formats import BF16, FORMATS, FP32, INT8_ROW, Array, Format, Shape
from ninfer.engine.artifact.layouts import PLANE_ALIGN_BYTES, Contiguous

EVERY_FORMAT: tuple[Format, ...] = (FP32, BF16, INT8_ROW)
matrices = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 9), st.integers(1, 70)), elements=st.floats(-1e4, 1e4, width=32)
)


def stored(form: Format, values: Array) -> bytes:
    return b"".join(Contiguous().pieces(form, values))


@pytest.mark.parametrize(
    ("form", "shape", "size_bytes"),
    [
        (FP32, (3, 5), 60),
        (FP32, (), 4),
        (BF16, (7,), 14),
        (INT8_ROW, (3, 5), PLANE_ALIGN_BYTES + 12),  # the scales begin on the next boundary
        (INT8_ROW, (2, 128), PLANE_ALIGN_BYTES + 8),
    ],
)
def test_bytes_of_a_shape(form: Format, shape: Shape, size_bytes: int) -> None:
    assert Contiguous().size_bytes(form.planes(shape)) == size_bytes
    assert len(stored(form, np.ones(shape, np.float32))) == size_bytes


@pytest.mark.parametrize("form", EVERY_FORMAT, ids=lambda form: form.name)
@given(values=matrices)
def test_pieces_do_not_show(form: Format, values: np.ndarray) -> None:
    """Encoded a row at a time or at once: equal bytes; unpacked and decoded: what the planes say."""
    whole = stored(form, values)
    assert b"".join(Contiguous(piece_bytes=1).pieces(form, values)) == whole
    planes = Contiguous().unpack(memoryview(whole), form.planes(values.shape))
    for plane, direct in zip(planes, form.encode(values), strict=True):
        np.testing.assert_array_equal(plane, direct)
    assert form.decode(planes).shape == values.shape


@given(values=matrices)
def test_int8_row_is_within_half_a_step_of_each_row(values: np.ndarray) -> None:
    """No value moves by more than half of a 127th of its row's largest; zeros stay zeros."""
    near = INT8_ROW.decode(INT8_ROW.encode(values))
    largest = np.max(np.abs(values), axis=1, keepdims=True)
    assert np.all(np.abs(near - values) <= largest / 127 * 0.5 + largest * 1e-6 + 1e-37)
    assert not near[values == 0].any()


def test_int8_row_holds_no_vector() -> None:
    with pytest.raises(ValueError, match="scales the rows of a matrix"):
        INT8_ROW.planes((7,))


@given(values=matrices)
def test_fp32_is_exact_and_bf16_is_the_nearest(values: np.ndarray) -> None:
    np.testing.assert_array_equal(FP32.decode(FP32.encode(values)), values)
    near = BF16.decode(BF16.encode(values))
    assert near.dtype == np.float32
    assert np.all(np.abs(near - values) <= np.abs(values) * 2.0**-8 + 1e-38)
    np.testing.assert_array_equal(BF16.decode(BF16.encode(near)), near)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_short_sources_are_exact_in_fp32(dtype: type) -> None:
    values = np.linspace(-3, 3, 64).astype(dtype).reshape(8, 8)
    np.testing.assert_array_equal(FP32.decode(FP32.encode(values)), values.astype(np.float32))


def test_ties_round_to_even() -> None:
    values = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8], np.float32)
    np.testing.assert_array_equal(BF16.decode(BF16.encode(values)), np.array([1, 1 + 2.0**-6], np.float32))


def test_registered_formats_are_known_by_their_own_names() -> None:
    assert {name: form.name for name, form in FORMATS.items()} == {
        "fp32": "fp32",
        "bf16": "bf16",
        "int8_row": "int8_row",
    }
    assert all(form.planes((2, 3))[0].size_bytes == math.prod((2, 3)) * width for form, width in ((FP32, 4), (BF16, 2)))
