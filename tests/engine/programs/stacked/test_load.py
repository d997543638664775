"""A stack out of an artifact: the packed bytes, joined and stacked, are the numbers that decoding the file gives."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from ninfer.engine.artifact import Artifact
from ninfer.engine.model.config import parse_text_config
from ninfer.engine.model.weights import load_weights
from ninfer.engine.programs.forms import is_packed
from ninfer.engine.programs.stacked import load_stacked, stacked_shapes
from tests.engine.programs.stacked.models import per_layer
from tools.random_artifact import write_random_artifact


@pytest.mark.contract("D18")
@pytest.mark.parametrize("recipe", ["bf16", "fp8", "int8", "groupwise", "nvfp4"])
def test_a_stack_holds_the_artifacts_numbers(golden_folder: Path, tmp_path: Path, recipe: str) -> None:
    members = json.loads((golden_folder / "config.json").read_text()) | {"hidden_size": 128, "intermediate_size": 192}
    (tmp_path / "small.json").write_text(json.dumps(members))
    write_random_artifact(tmp_path / "small.json", tmp_path / "m.ninfer", recipe=recipe, pool_elements=1 << 15)
    config = parse_text_config(members)
    with Artifact.open(tmp_path / "m.ninfer") as artifact:
        assert is_packed(config, artifact)
        loaded = load_stacked(config, artifact)
        shapes = stacked_shapes(config, lambda name: artifact.tensors[name].format.name)
        stacked = per_layer(config, loaded)
        plain = load_weights(config, artifact.read)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), shapes) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), loaded
    )
    for (path, ours), theirs in zip(jax.tree_util.tree_leaves_with_path(stacked), jax.tree.leaves(plain), strict=True):
        # Gains are stored as 1 + weight. A code times its scales is one product in one place and two in the other.
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=2e-7, err_msg=jax.tree_util.keystr(path))
