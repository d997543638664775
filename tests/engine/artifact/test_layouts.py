"""Layouts: natural planes come back from stored ones, and tiles of rows are runs of bytes wherever a tensor is cut."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_pallas import packing
from ninfer.engine.artifact.formats import BF16, FORMATS, FP32, INT8_ROW, NVFP4, Array, Format, Shape
from ninfer.engine.artifact.layouts import (
    CONTIGUOUS,
    FRAGMENT,
    LAYOUTS,
    PLANE_ALIGN_BYTES,
    Layout,
    places,
    size_bytes,
    views,
)
from ninfer.engine.artifact.recipe import RULE_FORMATS
from ninfer.engine.artifact.tensor_source import encoded

PAIRS = [(CONTIGUOUS, form) for form in FORMATS.values()] + [(FRAGMENT, FORMATS[name]) for name in RULE_FORMATS]
pairs = pytest.mark.parametrize(("layout", "form"), PAIRS, ids=lambda value: value.name)


def written(layout: Layout, form: Format, values: Array, cuts: list[int]) -> bytes:
    """The bytes of a tensor of which the rows between `cuts` were stored one after another."""
    source = encoded(name="w", component="text", shape=values.shape, format=form, layout=layout, load=lambda: values)
    planes, rows = layout.stored(form, values.shape), source.open()
    buffer = bytearray(source.size_bytes)
    for start, stop in zip([0, *cuts], [*cuts, len(values)], strict=True):
        for at, plane in zip(places(planes, len(values), start), rows.stored(start, stop).planes, strict=True):
            buffer[at : at + plane.nbytes] = np.ascontiguousarray(plane).tobytes()
    return bytes(buffer)


@pytest.mark.parametrize(
    ("form", "shape", "expected"),
    [
        (FP32, (3, 5), 60),
        (FP32, (), 4),
        (BF16, (7,), 14),
        (INT8_ROW, (3, 5), PLANE_ALIGN_BYTES + 12),  # the scales begin on the next boundary
        (INT8_ROW, (2, 128), PLANE_ALIGN_BYTES + 8),
        (NVFP4, (2, 128), PLANE_ALIGN_BYTES * 2 + 8),  # a byte for each code: no kernel reads it so
    ],
)
def test_bytes_of_a_shape(form: Format, shape: Shape, expected: int) -> None:
    assert size_bytes(CONTIGUOUS.stored(form, shape)) == expected


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("bf16", 16),
        ("fp8_row", 8),
        ("int8_g32", 8.5),
        ("q4_g64", 4.25),
        ("q5_g64", 5.25),
        ("q6_g64", 6.25),
        ("nvfp4", 4.5),
    ],
)
def test_fragments_waste_nothing(name: str, bits: float) -> None:
    shape = (5120, 17408)
    planes = FRAGMENT.stored(FORMATS[name], shape)
    assert size_bytes(planes) * 8 / (shape[0] * shape[1]) == pytest.approx(bits, rel=5e-4)


@pairs
@given(data=st.data())
def test_pieces_do_not_show(layout: Layout, form: Format, data: st.DataObject) -> None:
    """Stored at once or in pieces of whole steps: equal bytes; unpacked: the planes that the format made."""
    tiles, columns = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([64, 128, 192, 256]))
    values = np.random.default_rng(data.draw(st.integers(0, 99))).standard_normal((16 * tiles, columns), np.float32)
    steps = range(layout.row_step, len(values), layout.row_step)
    cuts = sorted(data.draw(st.sets(st.sampled_from(list(steps)), max_size=3))) if steps else []
    whole = written(layout, form, values, [])
    assert written(layout, form, values, cuts) == whole
    stored = views(memoryview(whole), layout.stored(form, values.shape))
    for plane, direct in zip(layout.unpack(form, values.shape, stored), form.encode(values), strict=True):
        np.testing.assert_array_equal(plane, direct)
        assert plane.dtype == direct.dtype


@pytest.mark.parametrize("name", RULE_FORMATS)
def test_matrices_join_by_rows(name: str) -> None:
    """What the device does with q, k and v: every plane of the joined matrix is the planes one after another."""
    form = FORMATS[name]
    parts = [np.random.default_rng(rows).standard_normal((rows, 128), np.float32) for rows in (32, 16, 48)]
    packed = [FRAGMENT.pack(form, form.encode(part)) for part in parts]
    joined = FRAGMENT.pack(form, form.encode(np.concatenate(parts)))
    for planes, whole in zip(zip(*packed, strict=True), joined, strict=True):
        np.testing.assert_array_equal(np.concatenate(planes), whole)


@pytest.mark.parametrize("name", RULE_FORMATS)
def test_stored_planes_are_the_packings(name: str) -> None:
    specs = packing.plane_specs(name, 32, 128)
    planes = FRAGMENT.stored(FORMATS[name], (32, 128))
    assert [(plane.name, plane.shape, plane.dtype) for plane in planes] == [
        (plane, spec.shape, spec.dtype) for plane, spec in specs.items()
    ]


def test_a_view_of_bf16_needs_no_number_of_its_own() -> None:
    values = np.arange(16 * 64, dtype=np.float32).reshape(16, 64).astype(ml_dtypes.bfloat16)
    (stored,) = FRAGMENT.pack(BF16, (values,))
    assert stored.dtype == np.dtype("<u4")
    (back,) = FRAGMENT.unpack(BF16, values.shape, (stored,))
    np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize(
    ("form", "shape", "says"),
    [
        (BF16, (64,), "layout fragment holds matrices"),
        (BF16, (24, 64), "multiple of 16 rows"),
        (BF16, (16, 96), "of 64 columns"),
        (FP32, (16, 64), "'fp32' cannot be packed"),
        (INT8_ROW, (16, 64), "'int8_row' cannot be packed"),
    ],
)
def test_shapes_that_fit_no_tiles(form: Format, shape: Shape, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        FRAGMENT.stored(form, shape)


def test_registered_layouts_are_known_by_their_own_names() -> None:
    assert {name: layout.name for name, layout in LAYOUTS.items()} == {
        "contiguous": "contiguous",
        "fragment": "fragment",
    }
