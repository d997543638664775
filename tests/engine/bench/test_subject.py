"""Random models of a recipe, the bytes that a step of theirs moves, and the published shapes."""

import json
import math
from pathlib import Path

import attrs
import jax
import pytest

from ninfer.engine.bench.subject import RECIPES, matrix_formats, random_form
from ninfer.engine.bench.traffic import parameters_of, product_flops, traffic_of
from ninfer.engine.model.config import parse_text_config
from ninfer.engine.model.published import PUBLISHED
from tests.engine.model.golden import golden

CONFIG = golden().config
B27 = PUBLISHED["27b"]


def test_published_shapes_are_those_of_their_configs(shared: Path) -> None:
    raw = json.loads((shared / "data/configs/qwen3_6_27b.json").read_text())
    assert parse_text_config(raw) == B27


def test_the_27b_model_has_27_billion_parameters() -> None:
    assert parameters_of(B27) / 1e9 == pytest.approx(26.9, abs=0.1)
    products = parameters_of(B27) - 2 * B27.vocab_size * B27.hidden_size  # neither embedding nor head for each token
    assert product_flops(B27, 8192) / (2 * 8192) == pytest.approx(products, rel=0.001)


def test_a_step_reads_every_weight_but_the_embedding() -> None:
    form = random_form(CONFIG, "fp32", "fp32")
    traffic = traffic_of(form)
    everything = sum(leaf.nbytes for leaf in jax.tree.leaves(form.weights))
    table = CONFIG.vocab_size * CONFIG.hidden_size * 4
    assert traffic.weight_bytes == everything - table
    assert traffic.looked_up_bytes == CONFIG.hidden_size * 4
    assert traffic.weights["mlp.down_proj"] == 4 * CONFIG.num_layers * CONFIG.hidden_size * CONFIG.intermediate_size
    assert traffic.weights["mlp.gate_proj + mlp.up_proj"] > traffic.weights["mlp.down_proj"]
    assert not {"embed", ""} & set(traffic.weights)


def test_keys_values_and_states_count_as_they_are_kept() -> None:
    traffic = traffic_of(random_form(CONFIG, "fp32", "fp32"))
    assert traffic.token_bytes == 2 * 4 * CONFIG.full_layers * CONFIG.num_key_value_heads * CONFIG.head_dim
    matrix = CONFIG.linear_num_value_heads * CONFIG.linear_key_head_dim * CONFIG.linear_value_head_dim
    assert traffic.slot_bytes == 4 * CONFIG.linear_layers * (matrix + 3 * CONFIG.conv_channels)


def test_random_weights_have_numbers_of_a_sane_size() -> None:
    leaves = jax.tree.leaves(random_form(CONFIG, "fp32", "fp32").weights)
    assert all(math.isfinite(float(abs(leaf).max())) and float(abs(leaf).max()) < 10 for leaf in leaves)


@pytest.mark.parametrize(
    ("recipe", "kv_format", "says"),
    [
        ("fp32", "int8", "keeps keys and values in fp32"),
        ("q4", "fp32", "there are recipes"),
        ("q3", "bf16", "there are recipes"),
    ],
)
def test_what_does_not_exist_is_refused(recipe: str, kv_format: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        random_form(CONFIG, recipe, kv_format)


@pytest.mark.parametrize(
    ("recipe", "tensor", "form"),
    [
        ("q4", "layers.0.mlp.down_proj.weight", "q4_g64"),
        ("nvfp4", "lm_head.weight", "nvfp4"),
        ("groupwise", "lm_head.weight", "q6_g64"),
        ("fp8", "layers.3.self_attn.q_proj.weight", "fp8_row"),
    ],
)
def test_formats_are_those_of_a_conversion(recipe: str, tensor: str, form: str) -> None:
    assert recipe in RECIPES
    assert matrix_formats(B27, recipe)[tensor] == form
    assert matrix_formats(attrs.evolve(B27, tie_word_embeddings=True), recipe)[tensor] == form
