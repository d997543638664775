"""Weights as they lie on the device: turned matrices, the same for model functions, and no copy inside a program."""

from functools import partial

import jax
import numpy as np
import pytest

from ninfer.engine.programs.plan import prefill_plan_shape
from ninfer.engine.programs.steps import prefill_step, zero_memory
from ninfer.engine.programs.stored_weights import StoredWeights, store
from tests.engine.model.golden import WIDE, bits, golden, random_weights


def test_opened_they_are_what_was_stored() -> None:
    given = golden().weights
    opened = jax.jit(lambda stored: stored.opened())(store(given))
    for before, after in zip(jax.tree.leaves(given.layers), jax.tree.leaves(opened.layers), strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(given.embed if given.head is None else given.head, opened.head)


@pytest.mark.parametrize("shape", [(768, 384), (8192, 512), (6, 384), (64, 64), (320, 64)])
def test_rows_keep_their_bits_in_turned_products_of_2_to_32_rows(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    matrix, rows = rng.standard_normal(shape, np.float32), rng.standard_normal((32, shape[1]), np.float32)
    product = jax.jit(lambda x, turned: jax.lax.dot_general(x, turned.T, (((1,), (1,)), ((), ()))))
    whole = bits(product(rows, np.ascontiguousarray(matrix.T)))
    for count in (2, 3, 5, 8, 16, 31):
        np.testing.assert_array_equal(bits(product(rows[:count], np.ascontiguousarray(matrix.T))), whole[:count])


def test_a_program_with_a_loop_copies_no_matrix() -> None:
    """XLA would take the transposes out of the loop over tiles, as copies of all weights in every call."""
    weights = store(random_weights(WIDE))
    memory = jax.eval_shape(partial(zero_memory, WIDE, pages=2, slots=1))
    plan = jax.ShapeDtypeStruct(prefill_plan_shape(pages=2, tokens=128), np.dtype(np.int32))

    def workspace_bytes(stored: StoredWeights) -> int:
        program = jax.jit(partial(prefill_step, WIDE, WIDE.vocab_size, 2), donate_argnums=1)
        return int(program.lower(stored, memory, plan).compile().memory_analysis().temp_size_in_bytes)

    layers = sum(leaf.nbytes for leaf in jax.tree.leaves(weights.text.layers))
    assert workspace_bytes(weights) < layers / 2
