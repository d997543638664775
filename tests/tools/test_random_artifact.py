"""Random artifacts: whole, in the recipe's formats, of numbers that a model could have, and the same for a seed."""

import json
from pathlib import Path

import numpy as np
import pytest

from ninfer.cli.assembly import open_house
from ninfer.cli.options import ModelOptions, ServeOptions
from ninfer.engine.artifact import Artifact
from tools.random_artifact import write_random_artifact

POOL = 1 << 15


@pytest.fixture
def config(golden_folder: Path, tmp_path: Path) -> Path:
    """The golden model's config with matrices that fit tiles."""
    members = json.loads((golden_folder / "config.json").read_text())
    file = tmp_path / "small.json"
    file.write_text(json.dumps(members | {"hidden_size": 128, "intermediate_size": 192}))
    return file


@pytest.mark.parametrize("recipe", ["source", "bf16", "fp8", "int8", "groupwise", "nvfp4"])
def test_an_artifact_of_every_recipe(config: Path, tmp_path: Path, recipe: str) -> None:
    write_random_artifact(config, tmp_path / "m.ninfer", recipe=recipe, pool_elements=POOL)
    with Artifact.open(tmp_path / "m.ninfer") as artifact:
        assert artifact.name == f"random-small-{recipe}"
        assert artifact.components == ("text",)
        assert len(list(artifact.verify())) == len(artifact.tensors) + 4
        for name, record in artifact.tensors.items():
            values = artifact.read(name)
            assert np.all(np.isfinite(values)), name
            if len(record.shape) == 2 and name != "embed_tokens.weight":
                assert 0.8 < np.std(values) * np.sqrt(record.shape[1]) < 1.25, name
        assert artifact.resource("tokenizer.json") is not None
        layouts = {artifact.tensors[f"layers.0.mlp.{part}_proj.weight"].layout.name for part in ("gate", "up", "down")}
        assert layouts == {"contiguous" if recipe == "source" else "fragment"}


def test_a_seed_decides(config: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_random_artifact(config, tmp_path / name, seed=seed, name="n", mtp=True, pool_elements=POOL)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with Artifact.open(tmp_path / "a") as first, Artifact.open(tmp_path / "c") as other:
        assert first.components == ("text", "mtp")
        assert not np.array_equal(first.read("lm_head.weight"), other.read("lm_head.weight"))
        assert not np.array_equal(
            first.read("layers.0.mlp.up_proj.weight"), first.read("layers.0.mlp.gate_proj.weight")
        )


def test_stop_tokens_are_those_of_the_tokenizer(config: Path, tmp_path: Path) -> None:
    """The shape's config numbers its own tokenizer's tokens, and another one comes with the artifact."""
    config.write_text(json.dumps(json.loads(config.read_text()) | {"eos_token_id": 248044}))
    write_random_artifact(config, tmp_path / "m.ninfer", recipe="source", pool_elements=POOL)
    options = ServeOptions(model=ModelOptions(cache_dir=tmp_path))
    house = open_house(tmp_path / "m.ninfer", options, lambda progress: None)
    found = {house.tokenizer.decode([token]) for token in house.tokenizer.stop_tokens}
    assert found == {"<|endoftext|>", "<|im_end|>"}
