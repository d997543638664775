"""Names, shapes and the way back."""

from dataclasses import replace

import attrs
import jax
import numpy as np
import pytest

from ninfer.engine.model.shapes import tensor_shapes
from ninfer.engine.model.weights import WeightError, load_weights, named_tensors
from tests.engine.model.golden import golden


def test_names_and_shapes_are_those_that_were_loaded() -> None:
    given = golden()
    written = dict(named_tensors(given.weights))
    assert {name: array.shape for name, array in written.items()} == tensor_shapes(given.config, mtp=True)
    again = load_weights(given.config, written.__getitem__, mtp=True)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), again, given.weights))


def test_tied_models_have_one_matrix_for_both_ends() -> None:
    given = golden()
    config = attrs.evolve(given.config, tie_word_embeddings=True)
    written = dict(named_tensors(replace(given.weights, head=None, mtp=None)))
    weights = load_weights(config, written.__getitem__)
    assert weights.head is None
    assert weights.mtp is None
    assert set(written) == set(tensor_shapes(config))


def test_a_wrong_shape_is_named() -> None:
    given = golden()
    written = dict(named_tensors(given.weights)) | {"layers.1.mlp.up_proj.weight": np.zeros((96, 63), np.float32)}
    with pytest.raises(WeightError, match=r"layers\.1\.mlp\.up_proj\.weight: shape \[96, 63\], .* says \[96, 64\]"):
        load_weights(given.config, written.__getitem__)


def test_narrow_weights_keep_the_decay_wide() -> None:
    given = golden()
    weights = load_weights(given.config, dict(named_tensors(given.weights)).__getitem__, dtype="bfloat16")
    mixer = weights.layers[0].mixer
    assert mixer.a_log.dtype == mixer.dt_bias.dtype == np.float32  # type: ignore[union-attr]
    assert weights.embed.dtype.name == "bfloat16"
