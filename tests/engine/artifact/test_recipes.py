"""Recipes: what each tensor of a model gets, what a recipe file may say, and what the device asks for."""

import json
from collections import Counter
from pathlib import Path

import pytest

from ninfer.engine.artifact import Artifact, ArtifactError, convert
from ninfer.engine.artifact.expected import expected_tensors
from ninfer.engine.artifact.formats import NVFP4, NVFP4_SEARCH
from ninfer.engine.artifact.recipe import BUILT_IN, JOINED, Chosen, Given, Recipe, tensor_kind
from ninfer.engine.artifact.recipe_file import find_recipe

PUBLISHED = {
    "hidden_size": 5120, "intermediate_size": 17408, "vocab_size": 248320, "num_attention_heads": 24,
    "num_key_value_heads": 4, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 48,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "num_hidden_layers": 64, "layer_types": None,
}  # fmt: skip
"""The sizes of the 27B model."""


def published(golden_folder: Path) -> dict[str, Given]:
    config = json.loads((golden_folder / "config.json").read_text()) | PUBLISHED
    config["rope_parameters"] |= {"mrope_section": [11, 11, 10]}
    components = expected_tensors(config)
    return {name: Given(shape=shape, stored_type="BF16") for own in components.values() for name, shape in own.items()}


def kinds(chosen: Chosen) -> dict[str, str]:
    """Format and layout of each kind of tensor."""
    return {tensor_kind(name): f"{own.format.name} {own.layout.name}" for name, own in chosen.choices.items()}


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name not in ("source", "fp32", "int8_row")])
def test_what_kernels_ask_for(golden_folder: Path, name: str) -> None:
    """Of the real shapes every matrix of a product is in tiles; the rest is as its readers want it."""
    chosen = BUILT_IN[name].choose(published(golden_folder))
    assert not chosen.notes
    found = kinds(chosen)
    assert found["embed_tokens.weight"] == "bf16 contiguous"
    for gate in "ab":
        assert found[f"layers.*.linear_attn.in_proj_{gate}.weight"] == "bf16 contiguous"
    for part in ("linear_attn.conv1d.weight", "linear_attn.A_log", "linear_attn.dt_bias", "input_layernorm.weight"):
        assert found[f"layers.*.{part}"] == "fp32 contiguous"
    layouts = Counter(own.split()[1] for own in found.values())
    assert layouts["fragment"] == 10 + 1 + 8, "ten kinds in layers, the head, eight of the prediction head"
    for endings in JOINED:
        assert len({found[f"layers.*.{ending}"] for ending in endings}) == 1


def test_the_groupwise_recipe(golden_folder: Path) -> None:
    found = kinds(BUILT_IN["groupwise"].choose(published(golden_folder)))
    assert found["lm_head.weight"] == "q6_g64 fragment"
    assert found["layers.*.mlp.gate_proj.weight"] == "q4_g64 fragment"
    assert found["layers.*.mlp.down_proj.weight"] == "q5_g64 fragment"
    assert found["layers.*.self_attn.v_proj.weight"] == "q5_g64 fragment"
    assert found["mtp.layers.*.mlp.gate_proj.weight"] == "int8_g32 fragment"


def test_a_matrix_that_fits_no_tiles_takes_what_it_is_joined_with_along(golden_folder: Path) -> None:
    given = {
        "layers.0.self_attn.q_proj.weight": Given(shape=(128, 64), stored_type="F32"),
        "layers.0.self_attn.k_proj.weight": Given(shape=(8, 64), stored_type="F32"),
        "layers.0.self_attn.v_proj.weight": Given(shape=(8, 64), stored_type="F32"),
        "layers.0.mlp.down_proj.weight": Given(shape=(64, 64), stored_type="F32"),
    }
    chosen = BUILT_IN["nvfp4"].choose(given)
    assert list(kinds(chosen).values()) == ["bf16 contiguous"] * 3 + ["nvfp4 fragment"]
    (note,) = chosen.notes
    assert note.startswith("layers.*.self_attn.q_proj.weight and layers.*.self_attn.k_proj.weight and")
    assert "since a packed matrix has a multiple of 16 rows" in note


def test_notes_count_layers(golden_folder: Path, tmp_path: Path) -> None:
    notes = convert(golden_folder, tmp_path / "m.ninfer", recipe=BUILT_IN["q4"]).notes
    assert [note.split(":")[0] for note in notes] == [
        "layers.*.mlp.down_proj.weight",
        "mtp.layers.*.mlp.down_proj.weight",
    ]
    assert notes[0].endswith("has 96 (4 times)")


def recipe(tmp_path: Path, text: str, ending: str = ".toml") -> Recipe:
    file = (tmp_path / "mine").with_suffix(ending)
    file.write_text(text)
    return find_recipe(str(file))


MIXED = """
[[rules]]
tensors = ["*.mlp.*"]
format = "nvfp4"
encoder = "amax"
[[rules]]
tensors = "lm_head.weight"
format = "nvfp4"
[[rules]]
tensors = ["*"]
format = "fp8_row"
"""


def test_the_first_rule_that_matches_counts(golden_folder: Path, tmp_path: Path) -> None:
    found = recipe(tmp_path, MIXED)
    choices = found.choose(published(golden_folder)).choices
    assert choices["layers.0.mlp.up_proj.weight"].format == NVFP4
    assert choices["lm_head.weight"].format == NVFP4_SEARCH
    assert choices["layers.3.self_attn.q_proj.weight"].format.name == "fp8_row"
    assert found.to_json() == {
        "name": "mine",
        "rules": [
            {"tensors": ["*.mlp.*"], "format": "nvfp4", "encoder": "amax"},
            {"tensors": ["lm_head.weight"], "format": "nvfp4", "encoder": "search"},
            {"tensors": ["*"], "format": "fp8_row"},
        ],
    }
    as_json = recipe(tmp_path, json.dumps(found.to_json()), ".json")
    assert as_json.to_json() == found.to_json()


def test_an_artifact_tells_its_recipe(golden_folder: Path, tmp_path: Path) -> None:
    found = recipe(tmp_path, MIXED)
    convert(golden_folder, tmp_path / "m.ninfer", recipe=found)
    with Artifact.open(tmp_path / "m.ninfer") as artifact:
        assert artifact.directory.provenance == {"source": "safetensors", "recipe": found.to_json()}


def test_a_rule_without_a_tensor_is_told(golden_folder: Path, tmp_path: Path) -> None:
    found = recipe(tmp_path, '[[rules]]\ntensors = "*.mpl.*"\nformat = "q4_g64"\n' + MIXED)
    assert found.choose(published(golden_folder)).notes == ("recipe mine: ['*.mpl.*'] matches nothing",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nope", "malformed TOML"),
        ("", "rules: is missing"),
        ("rules = 3", "rules: must be an array"),
        ("colour = 3\nrules = []", "colour: is not known here; there are name, rules"),
        ("name = 3\nrules = []", "name: must be a string"),
        ('[[rules]]\nformat = "q4_g64"', "rules[0].tensors: is missing"),
        ("[[rules]]\ntensors = []", "rules[0].format: is missing"),
        ('[[rules]]\ntensors = "*"\nformat = "q3"', "rules[0].format: unknown format 'q3', a rule can ask for bf16,"),
        ('[[rules]]\ntensors = "*"\nformat = "fp32"', "unknown format 'fp32'"),
        ('[[rules]]\ntensors = [1]\nformat = "bf16"', "rules[0].tensors[0]: must be a string"),
        ('[[rules]]\ntensors = "*"\nformat = "nvfp4"\nencoder = "slow"', "for nvfp4 there is search, amax"),
        ('[[rules]]\ntensors = "*"\nformat = "bf16"\nencoder = "amax"', "for bf16 there is no choice"),
        ('[[rules]]\ntensors = "*"\nformat = "bf16"\nbits = 3', "rules[0].bits: is not known here"),
    ],
)
def test_files_that_are_no_recipes(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        recipe(tmp_path, text)
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "mine.toml"))


def test_a_repeated_member_is_refused_in_either_kind_of_file(tmp_path: Path) -> None:
    for text, ending in (('{"name": "a", "rules": [], "name": "b"}', ".json"), ('name = "a"\nname = "b"', ".toml")):
        with pytest.raises(ArtifactError, match=r"malformed (JSON: member 'name' stands there twice|TOML)"):
            recipe(tmp_path, text, ending)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"lm_head.weight": "q4_g64"}, "no rule for layers.0."),
        (
            {"*.gate_proj.*": "q4_g64", "*": "q5_g64"},
            "mine.json: a device reads these as one matrix, so they need one format:"
            " layers.0.mlp.gate_proj.weight q4_g64, layers.0.mlp.up_proj.weight q5_g64",
        ),
        (
            {"*.in_proj_z.*": "bf16", "*": "nvfp4"},
            "linear_attn.in_proj_qkv.weight nvfp4, layers.0.linear_attn.in_proj_z",
        ),
        ({"*3.self_attn.k*": "bf16", "*": "fp8_row"}, "layers.3.self_attn.k_proj.weight bf16"),
        (
            {"layers.7.mlp.down*": "bf16", "*": "nvfp4"},
            "a device keeps all layers in one stack, so they need one format:"
            " layers.0.mlp.down_proj.weight nvfp4, layers.7.mlp.down_proj.weight bf16",
        ),
    ],
)
def test_recipes_that_contradict_the_device(
    golden_folder: Path, tmp_path: Path, rules: dict[str, str], says: str
) -> None:
    text = json.dumps({"rules": [{"tensors": name, "format": form} for name, form in rules.items()]})
    with pytest.raises(ArtifactError) as caught:
        recipe(tmp_path, text, ".json").choose(published(golden_folder))
    assert says in str(caught.value)


def test_names_that_are_no_recipes(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="q3: no such recipe; there are source, fp32, int8_row, bf16, fp8"):
        find_recipe("q3")
    with pytest.raises(ArtifactError, match="cannot open"):
        find_recipe(str(tmp_path / "none.toml"))
