"""Conversions that were stopped: what was finished is found again, what is wrong is made anew."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ninfer.engine.artifact import Artifact, ArtifactError, Progress, convert
from ninfer.engine.artifact.framing import digest
from ninfer.engine.artifact.partial import kept, kept_files
from ninfer.engine.artifact.placing import Contents
from ninfer.engine.artifact.recipe import BUILT_IN
from ninfer.engine.artifact.writer import write_artifact

RECIPE = BUILT_IN["nvfp4"]
LIMIT_BYTES = 128 << 10


class Stop(BaseException):
    """What ends a conversion from outside."""


def stopping(after: int) -> Callable[[Progress], None]:
    """A report that ends the conversion at its call number `after`."""
    calls = 0

    def report(progress: Progress) -> None:
        nonlocal calls
        if calls == after:
            raise Stop
        calls += 1

    return report


@pytest.fixture(scope="module")
def whole(golden_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every volume of an uninterrupted conversion."""
    out = tmp_path_factory.mktemp("whole") / "m.ninfer"
    convert(golden_folder, out, recipe=RECIPE, volume_limit_bytes=LIMIT_BYTES)
    return result(out)


def go_on(folder: Path, out: Path, **options: object) -> tuple[str, ...]:
    return convert(folder, out, recipe=RECIPE, volume_limit_bytes=LIMIT_BYTES, resume=True, **options).notes  # type: ignore[arg-type]


def stop(folder: Path, out: Path, after: int) -> None:
    with pytest.raises(Stop):
        go_on(folder, out, report=stopping(after))


def result(out: Path) -> dict[str, str]:
    """Everything in the folder, by its digest."""
    return {file.name: digest(file.read_bytes()).hex() for file in out.parent.iterdir()}


@pytest.mark.contract("D18")
@settings(max_examples=12)
@given(stops=st.lists(st.integers(0, 75), max_size=3))
def test_any_stops_give_the_same_artifact(
    golden_folder: Path, tmp_path_factory: pytest.TempPathFactory, whole: dict[str, str], stops: list[int]
) -> None:
    out = tmp_path_factory.mktemp("stopped") / "m.ninfer"
    for after in stops:
        stop(golden_folder, out, after)
        assert all(file.name.startswith(".") for file in out.parent.iterdir()), "nothing under a final name"
        assert kept_files(out)
    go_on(golden_folder, out)
    assert result(out) == whole


def test_what_is_finished_is_not_encoded_again(golden_folder: Path, tmp_path: Path, whole: dict[str, str]) -> None:
    out = tmp_path / "m.ninfer"
    stop(golden_folder, out, 60)
    journal = (tmp_path / ".m.ninfer.partial.journal").read_text().splitlines()
    assert len(journal) == 61
    finished = sum(json.loads(line)["checksum"] is not None for line in journal[1:])
    notes = go_on(golden_folder, out)
    assert any(note.endswith("bytes were there from an earlier attempt") for note in notes)
    assert finished == 60
    assert result(out) == whole


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / ".m.ninfer.partial").write_bytes(b""),
        lambda folder: (folder / ".m.ninfer.partial").unlink(),
        lambda folder: os.truncate(folder / ".m.ninfer.partial", 60_000),
        lambda folder: (folder / ".m.ninfer.part0001.partial").write_bytes(bytes(200_000)),
        lambda folder: os.truncate(folder / ".m.ninfer.partial.journal", 500),
        lambda folder: (folder / ".m.ninfer.partial.journal").write_bytes(b"\xff"),
        lambda folder: (folder / ".m.ninfer.partial.journal").unlink(),
        lambda folder: (folder / ".m.ninfer.part0009.partial").write_bytes(b"of something larger"),
    ],
)
def test_what_is_damaged_is_made_anew(
    golden_folder: Path, tmp_path: Path, whole: dict[str, str], damage: Callable[[Path], object]
) -> None:
    out = tmp_path / "m.ninfer"
    stop(golden_folder, out, 70)
    damage(tmp_path)
    go_on(golden_folder, out)
    found = result(out)
    found.pop(".m.ninfer.part0009.partial", None)
    assert found == whole


def damaged(data: bytes, kind: str, place: float, filling: bytes) -> bytes:
    """`data` changed at the share `place` of its length."""
    at = int(place * len(data))
    if kind == "append":
        return data + filling
    if kind == "cut":
        return data[:at]
    if kind == "cut and append":
        return data[:at] + filling
    return data[:at] + bytes(255 - byte for byte in data[at : at + 1]) + data[at + 1 :]


@pytest.mark.contract("D18")
@settings(max_examples=40)
@given(
    after=st.integers(0, 75),
    kind=st.sampled_from(["append", "cut", "cut and append", "flip"]),
    which=st.integers(0, 20),
    place=st.floats(0, 1, exclude_max=True),
    filling=st.integers(1, 5000).map(lambda count: b"\xa5" * count),
)
@example(after=20, kind="append", which=0, place=0, filling=b"\xa5" * 5000)
@example(after=20, kind="append", which=1, place=0, filling=b"\xa5" * 200_000)
@example(after=70, kind="flip", which=0, place=0.999, filling=b"")
@example(after=70, kind="flip", which=9, place=0.5, filling=b"")
def test_any_damage_to_what_was_left_is_made_good(
    golden_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    whole: dict[str, str],
    after: int,
    kind: str,
    which: int,
    place: float,
    filling: bytes,
) -> None:
    """Behind what was written, in it and between it: padding is written, and lines of a journal are sealed."""
    out = tmp_path_factory.mktemp("damaged") / "m.ninfer"
    stop(golden_folder, out, after)
    left = sorted(out.parent.iterdir())
    file = left[which % len(left)]
    file.write_bytes(damaged(file.read_bytes(), kind, place, filling))
    go_on(golden_folder, out)
    assert result(out) == whole


@pytest.mark.parametrize("flip", ["object", "padding"])
def test_every_byte_of_a_volume_that_was_left_is_made_good(
    golden_folder: Path, tmp_path: Path, whole: dict[str, str], flip: str
) -> None:
    """All bytes that are zero, or all that are not, turned over at once."""
    out = tmp_path / "m.ninfer"
    stop(golden_folder, out, 70)
    for file in kept_files(out):
        file.write_bytes(bytes(255 - byte if bool(byte) == (flip == "object") else byte for byte in file.read_bytes()))
    go_on(golden_folder, out)
    assert result(out) == whole


def test_damage_where_a_volume_has_no_object(tmp_path: Path) -> None:
    """The first object fits no entry file beside the directory: only padding follows it there."""
    contents = Contents(
        architecture="qwen3_5", name="x" * 4500, components={}, resources={"a": b"a" * 7000}, tensors=[], provenance={}
    )
    entry = tmp_path / "m.ninfer"
    write_artifact(entry, contents, volume_limit_bytes=12_000)
    whole = result(entry)
    assert entry.stat().st_size == 8192
    assert whole.keys() == {"m.ninfer", "m.ninfer.part0001"}
    for file in list(tmp_path.iterdir()):
        file.unlink()
    with pytest.raises(Stop):
        write_artifact(entry, contents, volume_limit_bytes=12_000, resume_key="k", report=stopping(1))
    for file in kept_files(entry):
        file.write_bytes(b"\xa5" * 20_000)
    write_artifact(entry, contents, volume_limit_bytes=12_000, resume_key="k")
    assert result(entry) == whole


def test_another_conversion_begins_anew(golden_folder: Path, tmp_path: Path) -> None:
    """Another recipe or another name: nothing of the stopped one is taken."""
    out = tmp_path / "m.ninfer"
    stop(golden_folder, out, 70)
    notes = convert(golden_folder, out, recipe=BUILT_IN["q4"], resume=True).notes
    assert not any("earlier attempt" in note for note in notes)
    convert(golden_folder, tmp_path / "n.ninfer", recipe=BUILT_IN["q4"], name=golden_folder.name)
    assert result(out).keys() == {"m.ninfer", "n.ninfer"}
    assert out.read_bytes() == (tmp_path / "n.ninfer").read_bytes()


def test_two_at_once(golden_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.ninfer"
    with kept(out, 1, "key"), pytest.raises(ArtifactError, match="another process is writing this artifact"):
        go_on(golden_folder, out)


KILLED = """
import os, signal, sys
from pathlib import Path
from ninfer.engine.artifact import convert
from ninfer.engine.artifact.recipe import BUILT_IN
from ninfer.engine.artifact.writer import write_artifact
calls = 0
def report(progress):
    global calls
    calls += 1
    if calls == 70:
        os.kill(os.getpid(), signal.SIGKILL)
convert(Path(sys.argv[1]), Path(sys.argv[2]), recipe=BUILT_IN["nvfp4"], volume_limit_bytes=131072,
        resume=sys.argv[3] == "resume", report=report)
"""


@pytest.mark.parametrize("kind", ["resume", "throw away"])
def test_a_killed_process(golden_folder: Path, tmp_path: Path, whole: dict[str, str], kind: str) -> None:
    """SIGKILL: a resumable conversion goes on; what the other kind left is removed by the next attempt of any kind."""
    out = tmp_path / "m.ninfer"
    done = subprocess.run([sys.executable, "-c", KILLED, str(golden_folder), str(out), kind], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left
    notes = go_on(golden_folder, out)
    assert any("earlier attempt" in note for note in notes) == (kind == "resume")
    assert result(out) == whole


def test_temporary_files_of_a_living_process_stay(golden_folder: Path, tmp_path: Path) -> None:
    """Two conversions of one target, the second inside of the first's reports: both go their way."""
    out = tmp_path / "m.ninfer"

    def second(progress: Progress) -> None:
        if progress.done_bytes == 0 and not out.exists():
            convert(golden_folder, out, replace=True)

    convert(golden_folder, out, replace=True, report=second)
    assert [file.name for file in tmp_path.iterdir()] == ["m.ninfer"]
    with Artifact.open(out) as artifact:
        assert list(artifact.verify())
