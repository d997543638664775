"""What products ask for ahead of time: shares cover the part that is wanted and never leave its array."""

import itertools

import jax
import jax.numpy as jnp
from hypothesis import given
from hypothesis import strategies as st

from kernels_pallas.ahead import shares_of
from kernels_pallas.arrays import Ahead, PackedMatrix
from kernels_pallas.packing import plane_specs

LAYER = jax.ShapeDtypeStruct((1,), jnp.int32)
LAYERS = 3
LINE_BYTES = 128


def matrix(format: str, n: int, k: int) -> PackedMatrix:
    planes = plane_specs(format, n, k)
    return PackedMatrix(
        format=format,
        **{name: jax.ShapeDtypeStruct((LAYERS, *spec.shape), spec.dtype) for name, spec in planes.items()},
    )


@given(
    st.sampled_from(["bf16", "q4_g64", "q5_g64", "nvfp4"]),
    st.integers(1, 40),
    st.integers(1, 700),
    st.integers(1, 1 << 20),
)
def test_shares_cover_a_part_and_stay_inside(format: str, tiles: int, programs: int, size_bytes: int) -> None:
    whole = matrix(format, 16 * tiles, 1024)
    codes_bytes = whole.codes.size * whole.codes.dtype.itemsize // LAYERS
    for share in shares_of((Ahead(whole, LAYER, size_bytes),), programs):  # type: ignore[arg-type]
        plane = getattr(whole, share.plane.removeprefix("ahead0_"))
        size, itemsize = plane.size // LAYERS, plane.dtype.itemsize
        starts = [min(program * share.each, share.last) for program in range(programs)]
        assert all(0 <= start <= size - share.each for start in starts)
        assert all(start * itemsize % 16 == 0 for start in starts)
        assert share.each_bytes == share.each * itemsize
        assert share.each_bytes % 16 == 0
        wanted_bytes = min(size_bytes, codes_bytes) * size * itemsize // codes_bytes
        assert starts[0] == 0
        assert (starts[-1] + share.each) * itemsize > wanted_bytes - LINE_BYTES
        assert all(after - before <= share.each for before, after in itertools.pairwise(starts))  # no gap
