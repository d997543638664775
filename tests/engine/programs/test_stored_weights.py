"""Weights as they lie on the device: turned matrices, the same for model functions, and no copy inside a program."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from ninfer.engine.model.reduce import Matrix, Part
from ninfer.engine.model.weights import TextWeights
from ninfer.engine.programs.plan import decode_plan_shape, prefill_plan_shape
from ninfer.engine.programs.steps import decode_step, prefill_step, zero_memory
from ninfer.engine.programs.stored_weights import StoredWeights, as_they_are, padding_parameters, store
from tests.engine.model.golden import WIDE, bits, golden, random_weights


def alone(weights: TextWeights) -> TextWeights:
    """The same with each part of a joined matrix as a matrix of its own."""

    def cut(leaf: Matrix) -> jax.Array:
        return leaf.matrix[leaf.start : leaf.start + leaf.width] if isinstance(leaf, Part) else leaf

    taken: TextWeights = jax.tree.map(cut, weights, is_leaf=lambda leaf: isinstance(leaf, Part))
    return taken


@pytest.mark.parametrize("form", [store, as_they_are])
def test_opened_they_are_what_was_stored(form: Callable[[TextWeights], StoredWeights]) -> None:
    given = golden().weights
    opened = jax.jit(lambda stored: alone(stored.opened()))(form(given))
    for before, after in zip(jax.tree.leaves(given.layers), jax.tree.leaves(opened.layers), strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(given.embed, opened.embed)
    head = opened.embed if opened.head is None else opened.head
    np.testing.assert_array_equal(given.embed if given.head is None else given.head, head)


def test_few_arrays_and_the_parts_of_a_matrix_in_one_product() -> None:
    """Embedding, head, vector; per layer the joined input, way back, gate with up, down: as many products; a vector."""
    stored = store(replace(golden().weights, mtp=None))
    layers = len(golden().config.layer_types)
    assert len(stored.arrays) == 3 + 5 * layers
    memory = jax.eval_shape(partial(zero_memory, golden().config, pages=2, slots=2))
    plan = jax.ShapeDtypeStruct(decode_plan_shape(pages=2, rows=2), np.dtype(np.int32))
    lowered = jax.jit(partial(decode_step, golden().config, 320), donate_argnums=1).lower(stored, memory, plan)
    # Layers that are alike are traced once: tracing was a fifth of a cold start, and most of a warm one.
    functions = re.findall(r"func\.func private @(_(?:attention|delta_net)_rows\w*)\(", lowered.as_text())
    assert sorted(functions) == ["_attention_rows", "_delta_net_rows"]
    lines = lowered.compile().as_text().splitlines()
    products = [line for line in lines if " dot(" in line and "batch_dims" not in line]  # those with a state have one
    assert len(products) == 1 + 4 * layers


def test_layers_of_a_kind_cut_their_vectors_at_the_same_places() -> None:
    """XLA makes one kernel for all of them then; cut out of one vector for all layers, each had kernels of its own."""
    stored = store(replace(golden().weights, mtp=None))
    named = jax.tree_util.tree_leaves_with_path(stored.layout.structure.unflatten(stored.layout.places))
    cuts: dict[str, set[tuple[int, tuple[int, ...]]]] = {}
    for path, place in named:
        layer = next((key for key in path if isinstance(key, jax.tree_util.SequenceKey)), None)
        if place.shape is not None and layer is not None:
            kind = type(golden().weights.layers[layer.idx].mixer).__name__
            cuts.setdefault(kind + jax.tree_util.keystr(path[2:]), set()).add((place.start, place.shape))
    assert len(cuts) > 8
    assert {name: places for name, places in cuts.items() if len(places) > 1} == {}


def test_memory_needs_know_what_joining_adds() -> None:
    for config, weights in ((golden().config, replace(golden().weights, mtp=None)), (WIDE, random_weights(WIDE))):
        added = sum(array.size for array in store(weights).arrays) - sum(leaf.size for leaf in jax.tree.leaves(weights))
        tied = config.vocab_size * config.hidden_size if config.tie_word_embeddings else 0
        assert added == padding_parameters(config) + tied


@pytest.mark.parametrize(
    "shape", [(768, 384), (1216, 384), (384, 512), (8192, 512), (832, 512), (64, 64), (512, 64), (320, 64)]
)
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

    layers = sum(leaf.nbytes for leaf in jax.tree.leaves(random_weights(WIDE).layers))
    assert workspace_bytes(weights) < layers / 2
