"""From Hugging Face folders, in all the shapes they come in, to artifacts; and what is wrong with bad ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from ninfer.engine.artifact import Artifact, ArtifactError, Progress, convert
from ninfer.engine.artifact.conversion import folder_name
from ninfer.engine.artifact.expected import expected_tensors
from ninfer.engine.artifact.recipe import BUILT_IN
from ninfer.engine.model.config import ConfigError
from tests.engine.artifact.damage import write_safetensors

TWICE = '{"model_type": "qwen3_5", "more": {}, "model_type": "qwen3_5"}'
"""JSON with a repeated member."""
Tensors = dict[str, np.ndarray]
Shape = Callable[[dict[str, Any], Tensors], None]


@pytest.fixture
def folder(golden_folder: Path, tmp_path: Path) -> Path:
    """A copy of the golden folder to change."""
    return Path(shutil.copytree(golden_folder, tmp_path / "hf"))


def reshape(folder: Path, change: Shape) -> None:
    """Change config and tensors of a folder."""
    config = json.loads((folder / "config.json").read_text())
    tensors: Tensors = load_file(folder / "model.safetensors")
    change(config, tensors)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)


def shard(folder: Path, count: int = 3) -> dict[str, str]:
    """Split the weights over several files with an index."""
    tensors = load_file(folder / "model.safetensors")
    weight_map = {name: f"model-{at % count + 1:05d}-of-{count:05d}.safetensors" for at, name in enumerate(tensors)}
    for file in set(weight_map.values()):
        write_safetensors(folder / file, {name: tensors[name] for name in tensors if weight_map[name] == file})
    (folder / "model.safetensors").unlink()
    write_index(folder, weight_map)
    return weight_map


def write_index(folder: Path, weight_map: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def wrap(config: dict[str, Any], tensors: Tensors) -> None:
    """As a model with vision is published: the text model's config and tensors one level down."""
    inner = dict(config)
    config.clear()
    config |= {"model_type": "qwen3_5", "architectures": ["X"], "text_config": inner, "vision_config": {}}
    config["tie_word_embeddings"] = inner.pop("tie_word_embeddings")
    for name in list(tensors):
        if name.startswith("model."):
            tensors[f"model.language_model.{name.removeprefix('model.')}"] = tensors.pop(name)
    tensors["model.visual.patch_embed.proj.bias"] = np.zeros(3, np.float32)
    tensors["model.visual.pos_embed.weight"] = np.zeros((2, 2), np.float32)


def same_tensors(entry: Path, golden_artifact: Path, *, but: tuple[str, ...] = ()) -> bool:
    """Whether the artifact has the golden model's tensors, bit for bit, without those in `but`."""
    with Artifact.open(entry) as artifact, Artifact.open(golden_artifact) as golden:
        same = all(np.array_equal(artifact.read(name), golden.read(name)) for name in artifact.tensors)
        return same and set(golden.tensors) - set(artifact.tensors) == set(but)


@pytest.mark.contract("D18")
def test_sharded(folder: Path, golden_artifact: Path, tmp_path: Path) -> None:
    shard(folder)
    convert(folder, tmp_path / "m.ninfer")
    assert same_tensors(tmp_path / "m.ninfer", golden_artifact)


@pytest.mark.contract("D18")
def test_wrapped_with_vision(folder: Path, golden_artifact: Path, tmp_path: Path) -> None:
    reshape(folder, wrap)
    conversion = convert(folder, tmp_path / "m.ninfer")
    assert conversion.notes == ("left out 2 vision tensors: this build serves text",)
    assert same_tensors(tmp_path / "m.ninfer", golden_artifact)


def test_int8_row_holds_matrices_in_a_byte_each_and_leaves_the_rest(
    folder: Path, golden_artifact: Path, tmp_path: Path
) -> None:
    convert(folder, tmp_path / "m.ninfer", recipe=BUILT_IN["int8_row"])
    with Artifact.open(tmp_path / "m.ninfer") as artifact, Artifact.open(golden_artifact) as golden:
        for name, record in artifact.tensors.items():
            exact = golden.read(name)
            assert record.format.name == ("int8_row" if exact.ndim == 2 else "fp32"), name
            step = np.max(np.abs(exact), axis=-1, keepdims=True) / 127 if exact.ndim == 2 else 0.0
            assert np.all(np.abs(artifact.read(name) - exact) <= step * 0.501), name


@pytest.mark.parametrize("in_file", [False, True], ids=["absent", "present"])
def test_tied_head(folder: Path, golden_artifact: Path, tmp_path: Path, in_file: bool) -> None:
    def tie(config: dict[str, Any], tensors: Tensors) -> None:
        wrap(config, tensors)
        config["tie_word_embeddings"] = True
        if not in_file:
            del tensors["lm_head.weight"]

    reshape(folder, tie)
    conversion = convert(folder, tmp_path / "m.ninfer")
    assert any("lm_head.weight" in note for note in conversion.notes) == in_file
    assert same_tensors(tmp_path / "m.ninfer", golden_artifact, but=("lm_head.weight",))
    with Artifact.open(tmp_path / "m.ninfer") as artifact:
        assert artifact.config("text")["tie_word_embeddings"] is True
        assert artifact.facts().parameters == 336_260 - 320 * 64, "a tied head counts once"


def test_without_a_prediction_head(folder: Path, tmp_path: Path) -> None:
    def drop(config: dict[str, Any], tensors: Tensors) -> None:
        for name in [name for name in tensors if name.startswith("mtp.")]:
            del tensors[name]

    reshape(folder, drop)
    convert(folder, tmp_path / "m.ninfer")
    with Artifact.open(tmp_path / "m.ninfer") as artifact:
        assert artifact.components == ("text",)


def test_a_head_that_the_config_does_not_name(folder: Path, tmp_path: Path) -> None:
    reshape(folder, lambda config, tensors: config.update(mtp_num_hidden_layers=0))
    assert convert(folder, tmp_path / "m.ninfer").notes == (
        "left out 15 mtp tensors: the config names no prediction head",
    )


@pytest.mark.parametrize(("dtype", "stored"), [(ml_dtypes.bfloat16, "bf16"), (np.float16, "fp32")])
def test_short_sources_keep_their_values(
    folder: Path, golden_artifact: Path, tmp_path: Path, dtype: type, stored: str
) -> None:
    def narrow(config: dict[str, Any], tensors: Tensors) -> None:
        for name in tensors:
            tensors[name] = tensors[name].astype(dtype)

    reshape(folder, narrow)
    convert(folder, tmp_path / "m.ninfer")
    with Artifact.open(tmp_path / "m.ninfer") as artifact, Artifact.open(golden_artifact) as golden:
        assert artifact.facts().dominant_format == stored
        for name in golden.tensors:
            expected = golden.read(name).astype(dtype).astype(np.float32)
            np.testing.assert_array_equal(artifact.read(name), expected, err_msg=name)


@pytest.mark.parametrize(
    ("value", "template"),
    [
        ("A", b"A"),
        ([{"name": "tool_use", "template": "B"}, {"name": "default", "template": "Ä"}], "Ä".encode()),
        (None, None),
    ],
)
def test_template_out_of_the_tokenizer_config(folder: Path, tmp_path: Path, value: object, template: object) -> None:
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))
    notes = convert(folder, tmp_path / "m.ninfer").notes
    with Artifact.open(tmp_path / "m.ninfer") as artifact:
        assert artifact.resource("chat_template.jinja") == template
    assert bool(notes) == (template is None)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/models/Qwen3.6-27B", "Qwen3.6-27B"),
        ("/hub/models--Qwen--Qwen3.6-27B/snapshots/0123abcd", "Qwen3.6-27B"),
        ("/", None),
    ],
)
def test_folder_name(path: str, name: str | None) -> None:
    assert folder_name(Path(path)) == name


def shape(change: Shape) -> Callable[[Path], None]:
    return lambda folder: reshape(folder, change)


def config(**members: object) -> Callable[[Path], None]:
    return shape(lambda config, tensors: config.update(members))


def text(name: str, content: str | bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def index(**changes: str | None) -> Callable[[Path], None]:
    """Shard, then let the index say something else of `norm`."""

    def write(folder: Path) -> None:
        weight_map: dict[str, object] = dict(shard(folder))
        write_index(folder, weight_map | {name.replace("__", "."): value for name, value in changes.items()})

    return write


def replaced(name: str, values: np.ndarray | None) -> Callable[[Path], None]:
    def change(config: dict[str, Any], tensors: Tensors) -> None:
        if values is None:
            del tensors[name]
        else:
            tensors[name] = values

    return shape(change)


@pytest.mark.contract("D18")
@pytest.mark.parametrize(
    ("change", "file", "says"),
    [
        (without("config.json"), "config.json", "is missing: this is not the folder of a Hugging Face model"),
        (text("config.json", "{"), "config.json", "malformed JSON"),
        (text("config.json", b"\xff"), "config.json", "malformed JSON"),
        (text("config.json", "[]"), "config.json", "must be a JSON object"),
        (text("config.json", TWICE), "config.json", "malformed JSON: member 'model_type' stands there twice"),
        (text("tokenizer_config.json", TWICE), "tokenizer_config.json", "stands there twice"),
        (
            lambda folder: (shard(folder), text("model.safetensors.index.json", TWICE)(folder)),
            "model.safetensors.index.json",
            "stands there twice",
        ),
        (config(model_type="llama"), "config.json", "model_type: unknown architecture 'llama'"),
        (config(model_type=None), "config.json", "model_type"),
        (config(text_config=[1]), "config.json", "text_config: must be a JSON object"),
        (config(hidden_size=None), "config.json", "hidden_size: missing"),
        (config(num_hidden_layers=10**12, layer_types=None), "config.json", "num_hidden_layers: out of range"),
        (config(num_hidden_layers=10**6, layer_types=None), "config.json", "num_hidden_layers: 1000000 is above"),
        (config(head_dim=10**400), "config.json", "head_dim: out of range"),
        (config(rms_norm_eps=10**400), "config.json", "rms_norm_eps: out of range"),
        (config(rms_norm_eps=float("nan")), "config.json", "rms_norm_eps"),
        (config(quantization_config={"bits": 8}), "config.json", "quantized checkpoints cannot be converted"),
        (config(num_experts=4), "config.json", "mixtures of experts are not supported"),
        (config(intermediate_size=97), "model.safetensors", "has shape [96, 64], but config.json says [97, 64]"),
        (without("model.safetensors"), "model.safetensors", "cannot open"),
        (text("model.safetensors", "short"), "model.safetensors", "truncated"),
        (replaced("model.norm.weight", None), "model.safetensors", "tensor norm.weight: is missing"),
        (replaced("mtp.norm.weight", None), "model.safetensors", "tensor mtp.norm.weight: is missing"),
        (
            replaced("model.norm.weight_scale", np.ones(1, np.float32)),
            "model.safetensors",
            "tensor model.norm.weight_scale: offset",
        ),
        (
            replaced("model.language_model.norm.weight", np.ones(64, np.float32)),
            "model.safetensors",
            "is the same tensor as",
        ),
        (
            replaced("model.norm.weight", np.ones((1, 64), np.float32)),
            "model.safetensors",
            "tensor model.norm.weight: offset",
        ),
        (text("tokenizer.json", "{"), "tokenizer.json", "malformed JSON"),
        (index(model__norm__weight="../x.safetensors"), "model.safetensors.index.json", "in the same folder"),
        (index(model__norm__weight="other.safetensors"), "other.safetensors", "cannot open"),
        (
            index(model__norm__weight="model-00001-of-00003.safetensors"),
            "model.safetensors.index.json",
            "tensor model.norm.weight: is not in model-00001-of-00003.safetensors",
        ),
        (index(model__norm__weight=None), "model.safetensors.index.json", "weight_map.model.norm.weight"),
        (lambda folder: (shard(folder), write_index(folder, [])), "model.safetensors.index.json", "must be a JSON"),
    ],
)
def test_folders_that_cannot_be_converted(
    folder: Path, tmp_path: Path, change: Callable[[Path], object], file: str, says: str
) -> None:
    change(folder)
    (tmp_path / "out").mkdir()
    with pytest.raises(ArtifactError) as caught:
        convert(folder, tmp_path / "out" / "m.ninfer")
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(folder / file))
    assert not list((tmp_path / "out").iterdir()), "nothing is left behind"


def test_types_that_cannot_be_converted(folder: Path, tmp_path: Path) -> None:
    """An integer tensor where the model has weights."""
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"dtype":"F32"', b'"dtype":"I32"'))
    with pytest.raises(ArtifactError, match="has type I32; only F32, F16, BF16 can be converted"):
        convert(folder, tmp_path / "m.ninfer")
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_an_existing_artifact_is_not_touched(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "m.ninfer").write_bytes(b"mine")
    with pytest.raises(ArtifactError, match="exists already"):
        convert(folder, tmp_path / "m.ninfer")
    assert (tmp_path / "m.ninfer").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("limit_bytes", "says"),
    [
        (4096, "the directory alone is larger than the volume limit of 4096 bytes"),
        (64 << 10, "tensor embed_tokens.weight: needs 81920 bytes, which no volume of at most 65536 bytes can hold"),
    ],
)
def test_limits_that_nothing_fits(folder: Path, tmp_path: Path, limit_bytes: int, says: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        convert(folder, tmp_path / "m.ninfer", volume_limit_bytes=limit_bytes)
    assert says in str(caught.value)


def test_a_volume_of_something_else_is_not_touched(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "m.ninfer.part0002").write_bytes(b"mine")
    with pytest.raises(ArtifactError, match=r"part0002: exists already"):
        convert(folder, out / "m.ninfer", volume_limit_bytes=256 << 10)
    assert [file.name for file in out.iterdir()] == ["m.ninfer.part0002"]


@pytest.mark.contract("D18")
@pytest.mark.parametrize("blocked", ["m.ninfer", "m.ninfer.part0002"])
def test_a_rename_that_fails_leaves_nothing(folder: Path, tmp_path: Path, blocked: str) -> None:
    """The file system refuses one of the final names after all volumes were written."""
    out = tmp_path / "out"
    out.mkdir()

    def block(progress: Progress) -> None:
        if progress.done_bytes == progress.total_bytes:
            (out / blocked / "full").mkdir(parents=True)

    with pytest.raises(ArtifactError, match="cannot write: Is a directory"):
        convert(folder, out / "m.ninfer", volume_limit_bytes=256 << 10, report=block)
    assert [file.name for file in out.iterdir()] == [blocked]


class Stop(BaseException):
    """What a cancelled start raises through the progress report."""


@pytest.mark.contract("D18")
@pytest.mark.parametrize("after", [0, 3, 75])
def test_a_conversion_that_is_stopped_leaves_nothing(folder: Path, tmp_path: Path, after: int) -> None:
    out = tmp_path / "out"
    out.mkdir()
    calls = 0

    def report(progress: object) -> None:
        nonlocal calls
        assert not list(out.glob("m.ninfer*")), "nothing under its final name before the end"
        if calls == after:
            raise Stop
        calls += 1

    with pytest.raises(Stop):
        convert(folder, out / "m.ninfer", volume_limit_bytes=256 << 10, report=report)
    assert not list(out.iterdir())


config_values = (
    st.none()
    | st.booleans()
    | st.integers(-1, 400)
    | st.sampled_from([10**9, 10**18, 10**400, -(10**400)])
    | st.floats()
    | st.text(max_size=3)
    | st.lists(st.integers(-1, 3), max_size=4)
    | st.dictionaries(st.sampled_from(["rope_theta", "type", "mrope_section"]), st.integers(), max_size=2)
)


@given(data=st.data())
def test_any_config_is_understood_or_refused(golden_folder: Path, data: Any) -> None:
    """Members replaced or taken away: a table of shapes or a `ConfigError`, quickly."""
    config = json.loads((golden_folder / "config.json").read_text())
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3), label="keys"):
        if data.draw(st.booleans(), label="drop"):
            config.pop(key, None)
        else:
            config[key] = data.draw(config_values, label="value")
    try:
        components = set(expected_tensors(config))
    except ConfigError as error:
        assert str(error)  # noqa: PT017
    else:
        assert {"text"} <= components <= {"text", "mtp"}
