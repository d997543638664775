"""The selection kernel gives the reference's bits: ties, zeros of both signs, infinities, NaN, every block border."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.sampling import best_tokens
from kernels_pallas.sampling.reference import best_tokens_reference
from kernels_pallas.sampling.triton import best_tokens_triton
from kernels_pallas.sampling.tuning import BestOptions
from kernels_pallas.target import count_kernels, lower_for_cuda

pytestmark = pytest.mark.filterwarnings("ignore:.*Triton backend.*:DeprecationWarning")

VOCABULARY, USED, CANDIDATES = 320, 300, 20
SIZES = {"used_tokens": USED, "candidates": CANDIDATES}
reference = jax.jit(functools.partial(best_tokens_reference, **SIZES))
kernel = jax.jit(functools.partial(best_tokens_triton, **SIZES, options=BestOptions(block=128), interpret=True))

Arguments = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def rows(seed: int, kind: str) -> Arguments:
    """Three rows of logits, counts of four slots, penalties."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((3, VOCABULARY)).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits)
    if kind == "zeros":
        logits = np.where(rng.random(logits.shape) < 0.5, -0.0, 0.0).astype(np.float32)
    if kind == "infinite":
        logits[0, :290], logits[1, 299], logits[2, 305] = -np.inf, np.inf, np.nan
    counts = rng.integers(0, 3, (4, VOCABULARY)).astype(np.int32)
    slots = np.array([2, 0, 3], np.int32)
    none = kind == "zeros"
    presence = np.array([0.0, 1.5, 0.3], np.float32) * (not none)
    frequency = np.array([0.0, 0.1, -0.7], np.float32) * (not none)
    return logits, counts, slots, presence, frequency


@pytest.mark.parametrize("kind", ["plain", "ties", "zeros", "infinite"])
def test_the_kernel_is_the_reference(kind: str) -> None:
    for seed in range(3):
        arguments = rows(seed, kind)
        expected, got = reference(*arguments), kernel(*arguments)
        np.testing.assert_array_equal(got.faulty, expected.faulty)
        np.testing.assert_array_equal(got.ids, expected.ids)
        np.testing.assert_array_equal(np.asarray(got.values).view(np.int32), np.asarray(expected.values).view(np.int32))


def test_faulty_rows_are_found_among_used_tokens_only() -> None:
    assert kernel(*rows(0, "infinite")).faulty.tolist() == [True, True, False]


def test_what_cannot_be_is_refused() -> None:
    arguments = tuple(map(jnp.asarray, rows(0, "plain")))
    with pytest.raises(ValueError, match="there are: auto, reference, triton"):
        best_tokens(*arguments, **SIZES, impl="mosaic")
    with pytest.raises(ValueError, match="20 candidates of 10"):
        best_tokens(*arguments, used_tokens=10, candidates=20)


def test_two_launches_at_the_real_size() -> None:
    def shape(*sizes: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, dtype)

    lowered = lower_for_cuda(
        functools.partial(best_tokens, used_tokens=248077, candidates=20, impl="triton"),
        shape(8, 248320), shape(9, 248320, dtype="int32"), shape(8, dtype="int32"), shape(8), shape(8),
    )  # fmt: skip
    assert count_kernels(lowered) == {"best_of_block": 1, "best_of_best": 1}
