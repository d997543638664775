"""The golden model and random models for tests: configs, weights and what the reference computed."""

import dataclasses
import json
from functools import cache
from pathlib import Path

import attrs
import numpy as np
from safetensors.numpy import load_file

from ninfer.engine.model.config import TextConfig, parse_text_config
from ninfer.engine.model.shapes import tensor_shapes
from ninfer.engine.model.weights import TextWeights, load_weights

FOLDER = Path(__file__).parents[2] / "data" / "golden" / "dense_text"

WIDE = TextConfig(
    vocab_size=8192,
    hidden_size=512,
    intermediate_size=640,
    layer_types=("linear_attention", "full_attention"),
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=64,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=64,
    linear_value_head_dim=64,
    max_position_embeddings=4096,
    mrope_section=(3, 3, 2),
)
"""Wide enough for XLA to change its reductions between batch sizes: rows x width reaches 4,096."""


@attrs.frozen
class Golden:
    """The golden model; `expected` is described in the fixture's README."""

    config: TextConfig
    weights: TextWeights
    prompts: tuple[tuple[int, ...], ...]
    greedy: tuple[tuple[int, ...], ...]
    expected: dict[str, np.ndarray]


@cache
def golden() -> Golden:
    """Loaded once a session; nobody changes it."""
    config = parse_text_config(json.loads((FOLDER / "config.json").read_text()))
    stored = load_file(FOLDER / "model.safetensors")
    prompts = json.loads((FOLDER / "inputs.json").read_text())["prompts"]

    def get(name: str) -> np.ndarray:
        return stored[name] if name in stored else stored[f"model.{name}"]

    return Golden(
        config=config,
        weights=load_weights(config, get, mtp=True),
        prompts=tuple(tuple(prompt["input_ids"]) for prompt in prompts),
        greedy=tuple(tuple(prompt["greedy"]) for prompt in prompts),
        expected=load_file(FOLDER / "expected.safetensors"),
    )


def shallow() -> tuple[TextConfig, TextWeights]:
    """Shape and weights of its last two layers, one of each kind: for programs whose numbers are not the question."""
    config, weights = golden().config, golden().weights
    return (
        attrs.evolve(config, layer_types=config.layer_types[-2:]),
        dataclasses.replace(weights, layers=weights.layers[-2:]),
    )


@cache
def random_weights(config: TextConfig, seed: int = 0) -> TextWeights:
    """Weights with the spread of the golden ones."""
    rng = np.random.default_rng(seed)
    shapes = tensor_shapes(config)

    def get(name: str) -> np.ndarray:
        shape = shapes[name]
        normal = rng.standard_normal(shape)
        if name.endswith("A_log"):
            return np.log(rng.uniform(0.2, 4.0, shape))
        if name.endswith("dt_bias"):
            return normal - 2.0
        if name.endswith("linear_attn.norm.weight"):
            return 1.0 + 0.1 * normal
        if "norm" in name:
            return 0.2 * normal
        if name.endswith("conv1d.weight"):
            return 0.5 * normal
        return normal if name.startswith("embed") else normal / np.sqrt(shape[-1])

    return load_weights(config, get)


def bits(values: object) -> np.ndarray:
    """float32 as uint32: equal means equal, zeros of either sign told apart."""
    return np.asarray(values, np.float32).view(np.uint32)
