"""What is no checkpoint that can be converted: one line says what it is and what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ninfer.engine.artifact import ArtifactError, convert, resolve_artifact
from ninfer.engine.artifact.mapping import LFS_POINTER

POINTER = LFS_POINTER + b"v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12\n"
Change = Callable[[Path], object]


@pytest.fixture
def folder(golden_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden_folder, tmp_path / "hf"))


def refused(path: Path, tmp_path: Path) -> set[str]:
    """What `convert` and `serve` say about `path`."""
    said = set()
    for attempt in (
        lambda: convert(path, tmp_path / "m.ninfer"),
        lambda: resolve_artifact(path, tmp_path / "cache", hub_dir=tmp_path / "hub"),
    ):
        with pytest.raises(ArtifactError) as caught:
            attempt()
        said.add(str(caught.value))
    assert not (tmp_path / "m.ninfer").exists()
    assert not list((tmp_path / "cache").glob("*"))
    return said


def member(name: str, value: object, *, inside: str | None = None) -> Change:
    """A change of config.json: `name`, or `name` of its text config."""

    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        if inside is None:
            config[name] = value
        else:
            config = {"model_type": "qwen3_5", inside: {**config, name: value}}
        (folder / "config.json").write_text(json.dumps(config))

    return change


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (member("quantization_config", {"quant_method": "awq"}), "config.json: quantization_config"),
        (member("quantization_config", {"bits": 4}, inside="text_config"), "text_config.quantization_config"),
        (member("quantization", {"bits": 4, "group_size": 64}), "config.json: quantization"),
        (member("quantization", {"bits": 4}, inside="text_config"), "text_config.quantization"),
        (member("compression_config", {"format": "pack-quantized"}), "config.json: compression_config"),
        (lambda folder: (folder / "hf_quant_config.json").write_text("{}"), "hf_quant_config.json"),
        (lambda folder: (folder / "quantize_config.json").write_text("{}"), "quantize_config.json"),
        (lambda folder: (folder / "quant_config.json").write_text("{}"), "quant_config.json"),
    ],
)
def test_a_quantized_folder(folder: Path, tmp_path: Path, change: Change, where: str) -> None:
    change(folder)
    (said,) = refused(folder, tmp_path)
    assert where in said
    assert "quantized checkpoints cannot be converted" in said


def test_null_marks_nothing(folder: Path, tmp_path: Path) -> None:
    member("quantization_config", None)(folder)
    convert(folder, tmp_path / "m.ninfer")
    assert (tmp_path / "m.ninfer").exists()


def without_weights(*names: str) -> Change:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        for name in names:
            (folder / name).write_bytes(b"weights")

    return change


def adapter(folder: Path) -> None:
    without_weights("adapter_config.json", "adapter_model.safetensors")(folder)
    (folder / "config.json").unlink()


def pointer(name: str) -> Change:
    return lambda folder: (folder / name).write_bytes(POINTER)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (adapter, "is an adapter (LoRA), not a model: merge it into its base model first"),
        (without_weights("pytorch_model-00001-of-00002.bin"), "has its weights as .bin files only"),
        (without_weights("model-Q4_K_M.gguf"), "has GGUF weights, which cannot be read: download the original model"),
        (pointer("model.safetensors"), "model.safetensors: is a Git LFS pointer, not the file itself: run `git lfs"),
        (pointer("tokenizer.json"), "tokenizer.json: is a Git LFS pointer"),
        (pointer("config.json"), "config.json: is a Git LFS pointer"),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"GGUF\3\0\0\0" + b"\xff" * 64),
            "model.safetensors: header: offset 0: is a GGUF file",
        ),
    ],
)
def test_a_folder_of_something_else(folder: Path, tmp_path: Path, change: Change, says: str) -> None:
    change(folder)
    (said,) = refused(folder, tmp_path)
    assert says in said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model.gguf", "is a GGUF file, which cannot be read: download the original model"),
        ("model.safetensors", "is a safetensors file: name the folder that holds it and its config.json"),
        ("pytorch_model.bin", "is a PyTorch file or a zip archive"),
        ("pointer.ninfer", "is a Git LFS pointer"),
    ],
)
def test_a_file_of_something_else(golden_folder: Path, tmp_path: Path, name: str, says: str) -> None:
    contents = {
        "model.gguf": b"GGUF\3\0\0\0" + bytes(100),
        "model.safetensors": (golden_folder / "model.safetensors").read_bytes(),
        "pytorch_model.bin": b"PK\x03\x04" + bytes(100),
        "pointer.ninfer": POINTER,
    }
    (tmp_path / name).write_bytes(contents[name])
    assert all(says in said for said in refused(tmp_path / name, tmp_path))


def test_an_id_that_was_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        resolve_artifact(Path("owner/large"), tmp_path / "cache", hub_dir=tmp_path / "hub")
    expected = f"no such model in {tmp_path / 'hub'}: `hf download owner/large` puts it there"
    assert str(caught.value) == f"owner/large: no such file or folder, and {expected}"


def test_a_path_that_is_no_id(tmp_path: Path) -> None:
    """Nothing is said of downloads where a file is meant."""
    for path in (Path("models/m.ninfer"), Path("src/nothing"), Path("nothing"), tmp_path / "a"):
        with pytest.raises(ArtifactError, match="cannot open: No such file or directory"):
            resolve_artifact(path, tmp_path / "cache", hub_dir=tmp_path / "hub")
