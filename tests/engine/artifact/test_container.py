"""Artifacts that are as they should be: written, read back, in one volume and in several."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ninfer.engine.artifact import Artifact, ArtifactError, Progress, convert
from ninfer.engine.artifact.checkpoint import open_checkpoint
from ninfer.engine.artifact.formats import BF16, FP32, NVFP4_SEARCH, Q6_G64, Format
from ninfer.engine.artifact.layouts import CONTIGUOUS, FRAGMENT, Layout
from ninfer.engine.artifact.placing import Contents
from ninfer.engine.artifact.recipe import BUILT_IN
from ninfer.engine.artifact.tensor_source import encoded
from ninfer.engine.artifact.writer import write_artifact

MIB = 1 << 20


def logical(folder: Path) -> dict[str, np.ndarray]:
    return {name.removeprefix("model."): value for name, value in load_file(folder / "model.safetensors").items()}


@pytest.mark.contract("D18")
def test_every_tensor_and_resource_comes_back(golden_artifact: Path, golden_folder: Path) -> None:
    with Artifact.open(golden_artifact) as artifact:
        assert (artifact.name, artifact.architecture) == ("golden", "qwen3_5")
        assert artifact.components == ("text", "mtp")
        expected = logical(golden_folder)
        assert set(artifact.tensors) == set(expected)
        for name, values in expected.items():
            np.testing.assert_array_equal(artifact.read(name), values, err_msg=name)
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            assert artifact.resource(name) == (golden_folder / name).read_bytes()
        assert artifact.resource("chat_template.jinja") == (golden_folder / "raw_template.jinja").read_bytes()
        assert artifact.resource("preprocessor_config.json") is None
        assert artifact.config("text")["hidden_size"] == 64
        assert len(list(artifact.verify())) == len(expected) + 4


def test_fp32_is_a_view_of_the_file_that_outlives_the_artifact(golden_artifact: Path) -> None:
    with Artifact.open(golden_artifact) as artifact:
        values = artifact.read("norm.weight")
        copy = values.copy()
    assert not values.flags.owndata
    assert not values.flags.writeable
    assert values.ctypes.data % 64 == 0, "aligned for the device copy"
    np.testing.assert_array_equal(values, copy)
    with pytest.raises(ValueError, match="closed"):
        artifact.read("norm.weight")


def test_facts(golden_artifact: Path) -> None:
    with Artifact.open(golden_artifact) as artifact:
        whole, text, mtp = artifact.facts(), artifact.facts("text"), artifact.facts("mtp")
    assert text.parameters + mtp.parameters == whole.parameters == 336_260
    assert whole.weight_bytes == 4 * whole.parameters
    assert whole.dominant_format == "fp32"


@pytest.mark.contract("D18")
def test_volumes_hold_the_limit_and_read_the_same(golden_folder: Path, golden_artifact: Path, tmp_path: Path) -> None:
    limit_bytes = 256 << 10
    convert(golden_folder, tmp_path / "m.ninfer", volume_limit_bytes=limit_bytes)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files[:2]] == ["m.ninfer", "m.ninfer.part0001"]
    assert len(files) >= 6
    assert all(file.stat().st_size <= limit_bytes for file in files)
    with Artifact.open(tmp_path / "m.ninfer") as many, Artifact.open(golden_artifact) as one:
        for name in one.tensors:
            np.testing.assert_array_equal(many.read(name), one.read(name), err_msg=name)
        assert len(list(many.verify())) == len(list(one.verify()))


def test_an_artifact_can_be_renamed_with_its_volumes(golden_folder: Path, tmp_path: Path) -> None:
    convert(golden_folder, tmp_path / "m.ninfer", volume_limit_bytes=MIB)
    for file in list(tmp_path.iterdir()):
        file.rename(tmp_path / file.name.replace("m.ninfer", "other name"))
    with Artifact.open(tmp_path / "other name") as artifact:
        assert list(artifact.verify())


def test_equal_inputs_give_equal_bytes(golden_folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        convert(golden_folder, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.contract("D18")
def test_bf16_rounds_matrices_and_leaves_vectors(golden_folder: Path, tmp_path: Path) -> None:
    convert(golden_folder, tmp_path / "m.ninfer", recipe=BUILT_IN["bf16"])
    with Artifact.open(tmp_path / "m.ninfer") as artifact:
        assert artifact.facts().dominant_format == "bf16"
        for name, record in artifact.tensors.items():
            assert record.format is (BF16 if len(record.shape) == 2 else FP32), name
        # The golden weights are bf16 numbers: nothing is lost.
        for name, values in logical(golden_folder).items():
            np.testing.assert_array_equal(artifact.read(name), values, err_msg=name)
        (plane,) = artifact.planes("embed_tokens.weight")
        assert plane.dtype == BF16.dtype


@pytest.mark.contract("D18")
def test_a_component_that_is_not_there_is_an_error_only_when_asked_for(golden_folder: Path, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(golden_folder)
    text = [
        encoded(name=t.name, component=t.component, shape=t.shape, format=FP32, layout=CONTIGUOUS, load=t.load)
        for t in checkpoint.tensors
        if t.component == "text"
    ]
    contents = Contents(
        architecture="qwen3_5",
        name=None,
        components={"text": checkpoint.text_config},
        resources={},
        tensors=text,
        provenance={},
    )
    write_artifact(tmp_path / "m.ninfer", contents)
    with Artifact.open(tmp_path / "m.ninfer") as artifact:
        assert artifact.name is None
        assert artifact.components == ("text",)
        with pytest.raises(ArtifactError, match="no component 'vision', only text"):
            artifact.config("vision")


def test_progress_counts_to_the_end(golden_folder: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    convert(golden_folder, tmp_path / "m.ninfer", report=seen.append)
    done = [progress.done_bytes for progress in seen]
    assert done == sorted(done)
    assert done[0] == 0
    assert done[-1] == seen[-1].total_bytes


@pytest.mark.parametrize(
    ("form", "layout"), [(BF16, CONTIGUOUS), (Q6_G64, FRAGMENT), (NVFP4_SEARCH, FRAGMENT)], ids=["bf16", "q6", "nvfp4"]
)
def test_memory_does_not_grow_with_a_tensor(tmp_path: Path, form: Format, layout: Layout) -> None:
    rows = 4096
    values = np.broadcast_to(np.float32(0.5), (rows, 4096))  # 64 MiB that take 4 bytes
    contents = Contents(
        architecture="any",
        name=None,
        components={"text": {}},
        resources={},
        tensors=[
            encoded(
                name="w",
                component="text",
                shape=values.shape,
                format=form,
                layout=layout,
                load=lambda: values,
            )
        ],
        provenance={},
    )
    tracemalloc.start()
    try:
        write_artifact(tmp_path / "m.ninfer", contents, workers=1)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 24 * MIB
