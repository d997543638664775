"""What a path means: an artifact, a folder converted once into the cache, or a downloaded model's id."""

import os
import shutil
from pathlib import Path

import pytest

from ninfer.engine.artifact import Artifact, ArtifactError, default_cache_dir, default_hub_dir, resolve_artifact
from ninfer.engine.artifact.partial import thrown_away


@pytest.fixture
def folder(golden_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden_folder, tmp_path / "hf"))


@pytest.mark.contract("D18")
def test_a_folder_is_converted_once(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "deep" / "cache"
    reports: list[object] = []
    entry = resolve_artifact(folder, cache, reports.append)
    assert reports
    assert [path.name for path in cache.iterdir()] == [entry.name]
    with Artifact.open(entry) as artifact:
        assert artifact.name == "hf"
    before = entry.stat()
    reports.clear()
    assert resolve_artifact(folder, cache, reports.append) == entry
    assert not reports
    assert entry.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.contract("D18")
@pytest.mark.parametrize("change", ["weights touched", "template edited", "tokenizer gone", "renamed"])
def test_a_changed_folder_is_converted_anew(folder: Path, tmp_path: Path, change: str) -> None:
    first = resolve_artifact(folder, tmp_path / "cache")
    if change == "weights touched":
        os.utime(folder / "model.safetensors", ns=(1, 1))
    elif change == "template edited":
        (folder / "chat_template.jinja").write_text("other")
    elif change == "tokenizer gone":
        (folder / "tokenizer.json").unlink()
    else:
        folder = folder.rename(folder.with_name("renamed"))
    assert resolve_artifact(folder, tmp_path / "cache") != first


def test_what_a_killed_conversion_left_in_the_cache_goes(folder: Path, tmp_path: Path) -> None:
    """Of another model or an earlier state too; what a living process has locked stays."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for name in (".other-1234.ninfer.0123456789ab.tmp", ".other-1234.ninfer.part0001.0123456789ab.tmp"):
        (cache / name).write_bytes(b"half")
    (cache / "mine.tmp").touch()
    with thrown_away(cache / "living.ninfer", 2) as partial:
        entry = resolve_artifact(folder, cache)
        assert {path.name for path in cache.iterdir()} == {entry.name, "mine.tmp", *(p.name for p in partial.paths)}


def test_a_damaged_cache_is_made_anew(folder: Path, tmp_path: Path) -> None:
    entry = resolve_artifact(folder, tmp_path / "cache")
    whole = entry.read_bytes()
    os.truncate(entry, 9000)
    assert resolve_artifact(folder, tmp_path / "cache") == entry
    assert entry.read_bytes() == whole


def test_an_artifact_is_itself(golden_artifact: Path, tmp_path: Path) -> None:
    assert resolve_artifact(golden_artifact, tmp_path / "cache") == golden_artifact
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "cannot open: No such file or directory"),
        (lambda path: path.mkdir(), "is missing: this is not the folder of a Hugging Face model"),
        (lambda path: path.write_bytes(b"hello"), "not a .ninfer file"),
    ],
)
def test_neither(tmp_path: Path, make: object, says: str) -> None:
    path = tmp_path / "thing"
    make(path)  # type: ignore[operator]
    with pytest.raises(ArtifactError, match=says):
        resolve_artifact(path, tmp_path / "cache", hub_dir=tmp_path / "hub")


def test_a_cache_that_cannot_be_made(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="cannot make the cache folder"):
        resolve_artifact(folder, tmp_path / "file" / "cache")


@pytest.mark.contract("D18")
def test_an_id_of_a_downloaded_model(golden_folder: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--owner--small"
    shutil.copytree(golden_folder, repository / "snapshots" / "abc123")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123\n")
    entry = resolve_artifact(Path("owner/small"), tmp_path / "cache", hub_dir=tmp_path / "hub")
    with Artifact.open(entry) as artifact:
        assert artifact.name == "small"
    with pytest.raises(ArtifactError, match="hf download owner/large"):
        resolve_artifact(Path("owner/large"), tmp_path / "cache", hub_dir=tmp_path / "hub")


@pytest.mark.parametrize(
    ("environment", "cache", "hub"),
    [
        ({"NINFER_CACHE_DIR": "/c", "HF_HUB_CACHE": "/h"}, "/c", "/h"),
        ({"NINFER_CACHE_DIR": "/c", "HF_HOME": "/hf"}, "/c", "/hf/hub"),
    ],
)
def test_folders_from_the_environment(environment: dict[str, str], cache: str, hub: str) -> None:
    assert default_cache_dir(environment) == Path(cache)
    assert default_hub_dir(environment) == Path(hub)


def test_folders_without_an_environment() -> None:
    assert default_cache_dir({}).name == "ninfer"
    assert default_hub_dir({}).parts[-2:] == ("huggingface", "hub")
