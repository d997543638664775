"""A model of random weights in one recipe and one format of keys and values, as the forms that serve hold it.

Recipes are those of a conversion. `fp32` is the form with an array for each tensor, and keeps keys and values in
float32; every other one is the stacked form, whose weights are made on the device. Knows shapes, no files.
"""

from typing import get_args

import jax
import numpy as np

from ninfer.engine.artifact.recipe import BUILT_IN, Given
from ninfer.engine.cache import pages_for
from ninfer.engine.memory import MemoryNeeds
from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.shapes import tensor_shapes
from ninfer.engine.model.weights import load_weights
from ninfer.engine.programs.footprint import memory_needs
from ninfer.engine.programs.form import Form
from ninfer.engine.programs.per_layer import PerLayer
from ninfer.engine.types import KvDtype

PLAIN_RECIPE = "fp32"
PLAIN_KV_FORMAT = "fp32"
STACKED_RECIPES = ("bf16", "fp8", "int8", "q4", "nvfp4", "groupwise", "nvfp4_fp8")
RECIPES = (PLAIN_RECIPE, *STACKED_RECIPES)
STACKED_KV_FORMATS: tuple[str, ...] = get_args(KvDtype)


def default_recipe() -> str:
    """What the default device is made for."""
    return PLAIN_RECIPE if jax.devices()[0].platform == "cpu" else "q4"


def random_form(config: TextConfig, recipe: str, kv_format: str, *, seed: int = 0) -> Form:
    """A form with random weights, on the default device. Blocks.

    Raises:
        ValueError: the recipe has no such format of keys and values, or cannot hold the model.
    """
    if recipe == PLAIN_RECIPE:
        if kv_format != PLAIN_KV_FORMAT:
            raise ValueError(f"recipe {recipe} keeps keys and values in {PLAIN_KV_FORMAT}, not in {kv_format}")
        return PerLayer(config, load_weights(config, _Random(config, seed).tensor))
    if recipe not in STACKED_RECIPES or kv_format not in STACKED_KV_FORMATS:
        raise ValueError(
            f"recipe {recipe} with keys and values in {kv_format}: there are recipes {', '.join(RECIPES)} "
            f"and formats {', '.join(STACKED_KV_FORMATS)}"
        )
    from ninfer.engine.programs.stacked import Stacked  # imports all kernels, of which the plain form needs none
    from ninfer.engine.programs.stacked.random import random_stacked

    formats = matrix_formats(config, recipe)
    return Stacked(config, random_stacked(config, formats.__getitem__, seed), kv_format=kv_format)


def matrix_formats(config: TextConfig, recipe: str) -> dict[str, str]:
    """Logical name -> format that a conversion by `recipe` gives it."""
    tensors = {name: Given(shape=shape, stored_type="BF16") for name, shape in tensor_shapes(config).items()}
    if config.tie_word_embeddings:  # the head is packed by itself, whatever it shares numbers with
        tensors["lm_head.weight"] = tensors["embed_tokens.weight"]
    return {name: choice.format.name for name, choice in BUILT_IN[recipe].choose(tensors).choices.items()}


def memory_of(
    config: TextConfig, recipe: str, kv_format: str, *, lanes: int, longest_tokens: int, chunk_tokens: int
) -> MemoryNeeds:
    """What a form of `random_form` needs on the default device, as `serve` counts it before anything is made."""
    if recipe == PLAIN_RECIPE:
        return memory_needs(config, lanes=lanes)
    from ninfer.engine.programs.stacked.footprint import stacked_needs  # imports all kernels, as above

    return stacked_needs(
        config,
        matrix_formats(config, recipe).__getitem__,
        kv_format=kv_format,
        lanes=lanes,
        table_pages=pages_for(longest_tokens),
        chunk_tokens=chunk_tokens,
    )


class _Random:
    """Numbers for each tensor, of a size that keeps activations in range."""

    def __init__(self, config: TextConfig, seed: int) -> None:
        self._shapes = tensor_shapes(config)
        self._generator = np.random.default_rng(seed)

    def tensor(self, name: str) -> np.ndarray:
        """float32, as Hugging Face shapes it."""
        shape = self._shapes[name]
        if "norm" in name:
            return np.full(shape, 1.0 if name.endswith("linear_attn.norm.weight") else 0.0, np.float32)
        values = self._generator.standard_normal(shape, np.float32)
        matrix = len(shape) == 2 and not name.startswith("embed")
        return values * np.float32(shape[-1] ** -0.5) if matrix else values
