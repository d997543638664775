"""Configs as Hugging Face spells them, and the refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from ninfer.engine.model.config import ConfigError, TextConfig, parse_text_config
from tests.engine.model.golden import FOLDER


def golden_config() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "config.json").read_text())
    return loaded


def test_the_golden_config() -> None:
    config = parse_text_config(golden_config())
    assert (config.hidden_size, config.vocab_size, config.num_layers) == (64, 320, 4)
    assert config.layer_types == ("linear_attention",) * 3 + ("full_attention",)
    assert (config.full_layers, config.linear_layers, config.group_size) == (1, 3, 2)
    assert (config.rotary_dims, config.mrope_section) == (8, (2, 1, 1))
    assert (config.key_width, config.value_width, config.conv_channels) == (32, 192, 256)
    assert config.rope_theta == 1e7
    assert not config.tie_word_embeddings
    assert config.mtp_layers == 1


def rewritten(**changes: Any) -> dict[str, Any]:
    raw = golden_config() | changes
    return {key: value for key, value in raw.items() if value is not ...}


ROPE = golden_config()["rope_parameters"]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param({"text_config": golden_config(), "model_type": "qwen3_5"}, id="wrapped"),
        pytest.param(rewritten(layer_types=..., full_attention_interval=4), id="interval"),
        pytest.param(rewritten(layer_types=...), id="default interval"),
        pytest.param(
            rewritten(rope_parameters={**{k: v for k, v in ROPE.items() if k != "rope_type"}, "type": "default"}),
            id="type",
        ),
        pytest.param(rewritten(rope_parameters=..., rope_scaling=ROPE), id="old name"),
        pytest.param(
            rewritten(rope_parameters={"mrope_section": [2, 1, 1]}, rope_theta=10_000_000, partial_rotary_factor=0.25),
            id="factors outside",
        ),
        pytest.param(rewritten(unheard_of=1), id="unknown keys do not matter"),
    ],
)
def test_other_spellings_mean_the_same(raw: dict[str, Any]) -> None:
    assert parse_text_config(raw) == parse_text_config(golden_config())


def test_the_outer_config_rules_tied_embeddings() -> None:
    outer = {"text_config": golden_config(), "tie_word_embeddings": True}
    assert parse_text_config(outer).tie_word_embeddings


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": ...}, "hidden_size: missing"),
        ({"hidden_size": "64"}, "hidden_size: expected a whole number, got '64'"),
        ({"hidden_size": 64.0}, "hidden_size: expected a whole number"),
        ({"hidden_size": True}, "hidden_size: expected a whole number"),
        ({"vocab_size": 0}, "vocab_size: 0 is out of range"),
        ({"num_key_value_heads": 3}, "num_attention_heads: 4 is no multiple of num_key_value_heads"),
        ({"linear_num_key_heads": 4}, "linear_num_value_heads: 6 is no multiple of linear_num_key_heads"),
        ({"layer_types": ["full_attention"]}, "layer_types: has 1 entries, but num_hidden_layers is 4"),
        ({"layer_types": ["sliding_attention"] * 4}, "layer_types[0]: 'sliding_attention' is neither"),
        ({"layer_types": 4}, "layer_types: expected a list"),
        ({"layer_types": ..., "full_attention_interval": 0}, "full_attention_interval: 0 is below 1"),
        ({"rope_parameters": {**ROPE, "rope_type": "yarn"}}, "rope_parameters.rope_type: 'yarn' is not supported"),
        ({"rope_parameters": {**ROPE, "mrope_interleaved": False}}, "rope_parameters.mrope_interleaved"),
        ({"rope_parameters": {**ROPE, "mrope_section": [2, 2, 2]}}, "mrope_section: [2, 2, 2] sums to 6"),
        ({"rope_parameters": {**ROPE, "mrope_section": [4]}}, "mrope_section: expected three whole numbers"),
        ({"rope_parameters": {**ROPE, "partial_rotary_factor": 0.1}}, "partial_rotary_factor: 0.1 of head_dim 32"),
        ({"rope_parameters": 3}, "rope_parameters: expected an object"),
        ({"model_type": "llama"}, "model_type: 'llama' is not supported"),
        ({"model_type": "qwen3_5_moe_text"}, "model_type: 'qwen3_5_moe_text'"),
        ({"num_experts": 8}, "num_experts: mixtures of experts"),
        ({"attention_bias": True}, "attention_bias: True is not supported, only False"),
        ({"hidden_act": "gelu"}, "hidden_act: 'gelu' is not supported, only 'silu'"),
        ({"attn_output_gate": False}, "attn_output_gate"),
        ({"linear_conv_kernel_dim": 3}, "linear_conv_kernel_dim: 3 is not supported"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: expected true or false"),
        ({"mtp_num_hidden_layers": 2}, "mtp_layers: 2 is out of range"),
        ({"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings"),
    ],
)
def test_refusals_name_the_key(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_text_config(rewritten(**changes))
    assert str(raised.value).startswith(says)


def test_published_configs(shared: Path) -> None:
    dense = parse_text_config(json.loads((shared / "data/configs/qwen3_6_27b.json").read_text()))
    assert (dense.num_layers, dense.full_layers, dense.hidden_size) == (64, 16, 5120)
    assert (dense.conv_channels, dense.rotary_dims) == (10240, 64)
    small = parse_text_config(json.loads((shared / "data/configs/qwen3_5_2b_text_only.json").read_text()))
    assert isinstance(small, TextConfig)
    assert small.tie_word_embeddings
