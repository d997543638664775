"""The golden model out of quantised artifacts, on the CPU: its logits move as far as its weights do, and no further."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer.engine.artifact import Artifact, convert
from ninfer.engine.artifact.checkpoint import open_checkpoint
from ninfer.engine.artifact.recipe import BUILT_IN, RULE_FORMATS, RuleRecipe
from ninfer.engine.model.sequence import sequence_logits
from ninfer.engine.model.weights import TextWeights, load_weights
from tests.engine.model.golden import golden

AMPLIFIED = 6
"""Four layers of a random model make about five of a relative error of one in the weights."""


@jax.jit
def logits(weights: TextWeights) -> jax.Array:
    """[T, V] of the first golden prompt."""
    return sequence_logits(golden().config, weights, jnp.array([golden().prompts[0]]))[0]


@pytest.mark.contract("D18")
@pytest.mark.parametrize("recipe", ["bf16", "int8", "fp8", "groupwise", "nvfp4", "nvfp4_fp8", "q4"])
def test_logits_stay_near(golden_folder: Path, tmp_path: Path, recipe: str) -> None:
    worst = max(convert(golden_folder, tmp_path / "m.ninfer", recipe=BUILT_IN[recipe]).relative_errors.values())
    exact = np.asarray(logits(golden().weights))
    with Artifact.open(tmp_path / "m.ninfer") as artifact:
        near = np.asarray(logits(load_weights(golden().config, artifact.read, mtp=True)))
    error = np.linalg.norm(near - exact) / np.linalg.norm(exact)
    assert error <= AMPLIFIED * worst
    assert (error == 0) == (recipe == "bf16"), "the golden weights are bf16 numbers"


@pytest.mark.parametrize("recipe", [name for name, own in BUILT_IN.items() if isinstance(own, RuleRecipe)])
def test_what_is_read_is_what_the_format_makes_of_it(golden_folder: Path, tmp_path: Path, recipe: str) -> None:
    """Through encoding, packing, file and unpacking: the numbers that the reference decoder gives."""
    own = BUILT_IN[recipe]
    convert(golden_folder, tmp_path / "m.ninfer", recipe=own)
    assert isinstance(own, RuleRecipe)
    assert {rule.format for rule in own.rules} <= set(RULE_FORMATS)
    with Artifact.open(tmp_path / "m.ninfer") as artifact:
        for tensor in open_checkpoint(golden_folder).tensors:
            form = next((rule.form() for rule in own.rules if rule.matches(tensor.name)), None)
            record = artifact.tensors[tensor.name]
            form = form if form is not None and form.name == record.format.name else record.format
            expected = form.decode(form.encode(tensor.load()))
            np.testing.assert_array_equal(artifact.read(tensor.name), expected, err_msg=tensor.name)
            error = np.linalg.norm(expected - tensor.load()) / np.linalg.norm(tensor.load())
            assert record.relative_error is None or record.relative_error == pytest.approx(error, rel=0.006, abs=1e-9)
