"""What kernels ask for ahead of time: shares cover the part that is wanted and never leave its array."""

import itertools

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_pallas.ahead import Share, operands_of, shares_of
from kernels_pallas.arrays import Ahead, AheadSlice, PackedMatrix
from kernels_pallas.gdn_step import gdn_step
from kernels_pallas.gdn_step.specs import step_specs
from kernels_pallas.packing import plane_specs
from kernels_pallas.target import count_kernels, lower_for_cuda

pytestmark = pytest.mark.filterwarnings("ignore:.*Triton backend.*:DeprecationWarning")

LAYER = jax.ShapeDtypeStruct((1,), jnp.int32)
LINE_BYTES = 128


def matrix(format: str, n: int, k: int) -> PackedMatrix:
    planes = plane_specs(format, n, k)
    return PackedMatrix(
        format=format, **{name: jax.ShapeDtypeStruct((3, *spec.shape), spec.dtype) for name, spec in planes.items()}
    )


def covered(share: Share, programs: int) -> list[tuple[int, int]]:
    """Elements that each program asks for."""
    starts = (min(share.first + program * share.each, share.last) for program in range(programs))
    return [(start, start + share.each) for start in starts]


@given(
    st.sampled_from(["bf16", "q4_g64", "q5_g64", "nvfp4"]),
    st.integers(1, 40),
    st.integers(1, 700),
    st.integers(0, 1 << 20),
    st.none() | st.integers(0, 1 << 20),
)
def test_shares_cover_a_part_and_stay_inside(
    format: str, tiles: int, programs: int, first_bytes: int, size_bytes: int | None
) -> None:
    whole = matrix(format, 16 * tiles, 1024)
    wanted = Ahead(whole, LAYER, first_bytes, size_bytes)  # type: ignore[arg-type]
    codes_bytes = whole.codes.size * whole.codes.dtype.itemsize // 3
    for share in shares_of((wanted,), programs):
        plane = getattr(whole, share.array.removeprefix("ahead0_"))
        size, itemsize = plane.size // 3, plane.dtype.itemsize
        pieces = covered(share, programs)
        assert all(0 <= begin < end <= size for begin, end in pieces)
        assert all(begin * itemsize % 16 == 0 for begin, _ in pieces)
        assert share.each_bytes == share.each * itemsize
        assert share.each_bytes % 16 == 0
        end_bytes = codes_bytes if size_bytes is None else min(first_bytes + size_bytes, codes_bytes)
        begin, end = (at * size * itemsize // codes_bytes for at in (first_bytes, end_bytes))
        assert min(at for at, _ in pieces) * itemsize <= begin
        assert max(at for _, at in pieces) * itemsize > end - LINE_BYTES
        assert all(left[1] >= right[0] for left, right in itertools.pairwise(pieces))  # no gap


@pytest.mark.parametrize(("shape", "asked_bytes"), [((2, 5, 64, 32), 64 * 32 * 4), ((2, 5, 8), 0)])
def test_a_slice_is_asked_for_at_the_start(shape: tuple[int, ...], asked_bytes: int) -> None:
    slots = jax.ShapeDtypeStruct((4,), jnp.int32)
    part = AheadSlice(jnp.zeros(shape), ((LAYER, 0), (slots, 3)))  # type: ignore[arg-type]
    (share,) = shares_of((part,), 3)
    assert share.early
    assert share.at == (("ahead0_at0", 0), ("ahead0_at1", 3))
    assert list(operands_of((part,))) == ["ahead0_array", "ahead0_at0", "ahead0_at1"]
    assert operands_of((part,))["ahead0_array"].shape == (*shape[:2], asked_bytes // 4 or 8)
    pieces = covered(share, 3)
    assert 4 * max(end for _, end in pieces) == asked_bytes  # less than a line: touched, not asked for by size


def test_a_kernel_that_asks_is_still_one_launch() -> None:
    arguments = step_specs(2)
    slots, state = arguments[5], arguments[2]

    def step(*given: object) -> object:
        layer, (codes, slot_numbers) = given[4], given[-2:]
        ahead = (
            Ahead(codes, layer, 0, 1 << 20),  # type: ignore[arg-type]
            AheadSlice(given[2].recurrent, ((layer, 0), (slot_numbers, 1))),  # type: ignore[arg-type, attr-defined]
            AheadSlice(slot_numbers),  # type: ignore[arg-type]
        )
        return gdn_step(*given[:-2], eps=1e-6, out_dtype="float16", ahead=ahead, impl="triton")  # type: ignore[arg-type]

    assert state.recurrent.shape[0] == 48
    lowered = lower_for_cuda(step, *arguments, matrix("q4_g64", 5120, 6144), slots)
    assert count_kernels(lowered) == {"gdn_step": 1}
