"""The kernel's PTX on emulated threads against the reference, with the places that the kernel gives it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.arrays import Activation
from kernels_pallas.gdn_step import GdnSizes, GdnState, GdnWeights, ptx
from kernels_pallas.gdn_step.reference import gdn_step_reference
from kernels_pallas.gdn_step.triton import places, shape_of, values
from tests.kernels_pallas.gdn_step.cases import EPS, random_rows, random_state, random_weights
from tests.kernels_pallas.gdn_step.threads import Program

SIZES = GdnSizes(key_heads=1, value_heads=2, key_dim=ptx.WIDTH, value_dim=ptx.WIDTH)
HIDDEN = 2304
"""All threads read eight columns each, then an eighth of them."""
LAYER = 1


class Memory:
    """Arrays one behind the other in one array of bytes."""

    def __init__(self, arrays: dict[str, jax.Array]) -> None:
        self.arrays = {name: np.asarray(array) for name, array in arrays.items()}
        self.starts: dict[str, int] = {}
        whole = bytearray()
        for name, array in self.arrays.items():
            self.starts[name] = len(whole)
            whole += array.tobytes().ljust(-(-array.nbytes // 256) * 256, b"\0")
        self.bytes = np.frombuffer(bytes(whole), np.uint8).copy()

    def address(self, name: str, index: tuple[int, ...]) -> int:
        """Of one element."""
        array = self.arrays[name]
        return self.starts[name] + int(np.ravel_multi_index(index, array.shape)) * array.itemsize

    def read(self, name: str) -> np.ndarray:
        """The array as it is now."""
        array = self.arrays[name]
        return self.bytes[self.starts[name] :][: array.nbytes].view(array.dtype).reshape(array.shape)


def emulate(
    text: str,
    projected: jax.Array,
    x: Activation,
    state: GdnState,
    weights: GdnWeights,
    slots: tuple[int, ...],
    positions: tuple[int, ...],
    out_dtype: str,
) -> list[np.ndarray]:
    """Output, state and ring after `text` has run for every row and head."""
    arrays = {
        "recurrent": state.recurrent,
        "conv": state.conv,
        "x": x.values,
        "ab": weights.ab,
        "a_log": weights.a_log,
        "dt_bias": weights.dt_bias,
        "projected": projected,
        "gain": weights.norm,
        "taps": weights.conv,
        "out": jnp.full((len(slots), SIZES.values), 7, out_dtype),
    }
    if x.squares is not None:
        arrays["squares"] = x.squares
    memory = Memory(arrays)
    for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
        for head in range(SIZES.value_heads):
            where = places(row, head, LAYER, max(slot, 0))
            given = values(SIZES, *(jnp.int32(number) for number in (head, slot, position)))
            operands = [memory.address(*where[name]) for name in ptx.ADDRESSES if where[name][0] in arrays]
            operands += [int(given[name]) for name in ptx.VALUES]
            program = Program(ptx.THREADS, memory.bytes, ptx.SHARED_BYTES)
            program.run(text, {f"${1 + number}": value for number, value in enumerate(operands)})
    return [memory.read(name) for name in ("out", "recurrent", "conv")]


@pytest.mark.parametrize(
    ("slots", "positions", "out_dtype", "squares"),
    [
        ((2, -1, 0), (5, 0, 0), "float32", True),  # a lane at work, padding, a first token
        ((1,), (2,), "float16", True),
        ((0,), (1003,), "bfloat16", False),
    ],
)
def test_the_ptx_is_the_reference(
    slots: tuple[int, ...], positions: tuple[int, ...], out_dtype: str, squares: bool
) -> None:
    weights, state = random_weights(3, SIZES, HIDDEN), random_state(4, SIZES)
    projected, x = random_rows(5, len(slots), SIZES, HIDDEN)
    if not squares:
        x = dataclasses.replace(x, values=x.values.astype(jnp.bfloat16), squares=None)
    numbers = [jnp.asarray(each, jnp.int32) for each in ((LAYER,), slots, positions)]
    dtype = jnp.dtype(out_dtype)
    expected, after = gdn_step_reference(projected, x, state, weights, *numbers, eps=EPS, out_dtype=dtype)
    text = ptx.text(shape_of(x, SIZES, EPS, dtype))
    got = emulate(text, projected, x, state, weights, slots, positions, out_dtype)
    rounding = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}[out_dtype]
    np.testing.assert_allclose(got[0].astype(np.float32), expected.values.astype(jnp.float32), rtol=rounding, atol=2e-6)
    np.testing.assert_allclose(got[1], after.recurrent, rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(got[2], after.conv)


def test_each_barrier_is_needed() -> None:
    weights, state = random_weights(6, SIZES, HIDDEN), random_state(7, SIZES)
    projected, x = random_rows(8, 1, SIZES, HIDDEN)
    arguments = (projected, x, state, weights, (1,), (9,), "float32")
    whole = ptx.text(shape_of(x, SIZES, EPS, jnp.dtype("float32")))
    parts = whole.split("bar.sync 0; ")
    assert len(parts) == 5
    for number in range(2, 5):  # the first one only holds loads
        without = "bar.sync 0; ".join([*parts[: number - 1], parts[number - 1] + parts[number], *parts[number + 1 :]])
        with pytest.raises(AssertionError, match="since the last barrier"):
            emulate(without, *arguments)


@pytest.mark.parametrize(
    ("sizes", "hidden", "reason"),
    [(GdnSizes(key_heads=2, value_heads=6, key_dim=16, value_dim=32), 64, "128 x 128"), (SIZES, 100, "256 threads")],
)
def test_what_has_no_form_is_refused(sizes: GdnSizes, hidden: int, reason: str) -> None:
    x = Activation(values=jnp.zeros((1, hidden), jnp.float16))
    with pytest.raises(NotImplementedError, match=reason):
        shape_of(x, sizes, EPS, jnp.dtype("float16"))
