"""Packed planes: shapes as promised, an exact inverse, merging along N."""

import numpy as np
import pytest

from kernels_pallas.packing import FORMATS, pack, plane_specs, unpack
from tests.kernels_pallas.quant_matmul.natural import natural_planes

SHAPES = [(16, 64), (48, 128), (32, 320), (32, 512)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_planes_have_the_promised_shapes_and_come_back(format: str, n: int, k: int) -> None:
    natural = natural_planes(format, n, k)
    packed = pack(format, natural)
    specs = plane_specs(format, n, k)
    assert {name: (p.shape, p.dtype) for name, p in packed.items()} == {
        name: (s.shape, s.dtype) for name, s in specs.items()
    }
    back = unpack(format, packed)
    for name, plane in natural.items():
        expected = plane.view(np.uint16) if format == "bf16" else plane
        assert back[name].dtype == expected.dtype
        np.testing.assert_array_equal(back[name], expected)


@pytest.mark.parametrize("format", FORMATS)
def test_matrices_merge_by_concatenation_along_n(format: str) -> None:
    parts = [natural_planes(format, 32, 256, seed) for seed in (1, 2)]
    merged = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    packed = [pack(format, part) for part in parts]
    for name, plane in pack(format, merged).items():
        np.testing.assert_array_equal(plane, np.concatenate([part[name] for part in packed]))


@pytest.mark.parametrize("format", FORMATS)
def test_stored_bytes_are_the_formats_bits(format: str) -> None:
    form = FORMATS[format]
    n, k = 64, 1024
    scale_bits = 0 if form.group is None else (8 if form.group == 16 else 16) / form.group
    row_bytes = 4 * n if form.row_scaled else 0
    specs = plane_specs(format, n, k).values()
    size_bytes = sum(int(np.prod(spec.shape)) * spec.dtype.itemsize for spec in specs)
    assert size_bytes == n * k * (form.bits + scale_bits) / 8 + row_bytes


@pytest.mark.parametrize(("format", "n", "k"), [("q3", 16, 64), ("bf16", 24, 64), ("q4_g64", 16, 96), ("nvfp4", 0, 64)])
def test_what_cannot_be_packed_is_refused(format: str, n: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"cannot be packed|multiple of 16 rows"):
        plane_specs(format, n, k)


def test_a_missing_plane_is_named() -> None:
    natural = natural_planes("nvfp4", 16, 64)
    del natural["row_scales"]
    with pytest.raises(ValueError, match="row_scales"):
        pack("nvfp4", natural)
