"""Artifacts that are not as they should be: always one `ArtifactError` that says where, never a wrong tensor."""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.engine.artifact import Artifact, ArtifactError, convert
from ninfer.engine.artifact.formats import FORMATS
from ninfer.engine.artifact.framing import HEADER_BYTES, MAGIC, Header, read_header
from ninfer.engine.artifact.layouts import LAYOUTS
from ninfer.engine.artifact.recipe import BUILT_IN
from tests.engine.artifact.damage import rewrite_directory, write_directory


def read_all(file: Path) -> int:
    """Open, verify, and take everything out: how many objects were good."""
    with Artifact.open(file) as artifact:
        for name in artifact.tensors:
            artifact.read(name)
        return len(list(artifact.verify()))


def refused(file: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        read_all(file)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(file))
    return text


def put(offset: int, data: bytes) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[offset : offset + len(data)] = data

    return change


def cut(length: int) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        del content[length:]

    return change


def sealed(**fields: Any) -> Callable[[bytearray], None]:
    """A header that is consistent in itself but says something else."""

    def change(content: bytearray) -> None:
        good = {"volume": 0, "volumes": 1, "directory_bytes": 10, "artifact_id": bytes(16)}
        content[:HEADER_BYTES] = Header(**(good | fields)).pack()

    return change


@pytest.mark.contract("D18")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put(0, b"NOPE"), "header: offset 0: not a .ninfer file: wrong magic"),
        (put(0, b"GGUF"), "header: offset 0: is a GGUF file, which cannot be read"),
        (put(7, b"\r"), "wrong magic"),
        (cut(0), "wrong magic"),
        (cut(3), "header: offset 3: truncated: 3 bytes"),
        (cut(40), "header: offset 40: truncated: 40 bytes"),
        (put(8, b"\x02"), "header: offset 8: container version 2, this build reads version 1"),
        (put(33, b"\xff\xff"), "header: offset 48: header checksum mismatch"),
        (put(16, b"\x02"), "header checksum mismatch"),
        (sealed(volume=3, volumes=4, directory_bytes=0), "header: offset 12: this is volume 3"),
        (sealed(volume=1), "header: offset 12: the header contradicts itself"),
        (sealed(directory_bytes=1 << 40), "the header contradicts itself"),
        (sealed(directory_bytes=1 << 27), "truncated: 1375232 bytes, the directory ends at"),
        (put(70, b"?"), "directory: offset 64: directory checksum mismatch"),
        (cut(9000), "directory: offset 9000: truncated"),
        (cut(1_300_000), "payload: offset 1300000: truncated: 1300000 bytes"),
        (lambda content: content.append(0), "too long"),
        (put(1_375_231, b"\x7f"), "tensor mtp.norm.weight: offset 1374976: checksum mismatch"),
    ],
)
def test_damaged_bytes(golden_artifact: Path, tmp_path: Path, change: Callable[[bytearray], None], says: str) -> None:
    content = bytearray(golden_artifact.read_bytes())
    change(content)
    file = tmp_path / "damaged.ninfer"
    file.write_bytes(content)
    assert says in refused(file)


def edit(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    """Set a member of the directory; `...` removes it."""

    def change(directory: dict[str, Any]) -> None:
        *parents, last = path
        node: Any = directory
        for key in parents:
            node = node[key]
        if value is ...:
            del node[last]
        else:
            node[last] = value

    return change


def repeat(kind: str) -> Callable[[dict[str, Any]], None]:
    return lambda directory: directory[kind].append(directory[kind][0])


@pytest.mark.contract("D18")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (edit("architecture", value="llama"), "directory.architecture: offset 64: unknown architecture 'llama'"),
        (edit("architecture", value=7), "directory.architecture: offset 64: must be a string"),
        (edit("components", "text", value=...), "tensor embed_tokens.weight: offset 64: belongs to component 'text'"),
        (edit("components", "text", "config", "hidden_size", value=...), "hidden_size: missing"),
        (edit("components", "text", "config", "hidden_size", value=65), "but the config says [320, 65]"),
        (edit("components", "text", "config", "num_experts", value=8), "mixtures of experts are not supported"),
        (edit("tensors", 3, value=...), "tensor layers.0.linear_attn.in_proj_z.weight: offset 64: is missing"),
        (edit("tensors", 0, "name", value="extra.weight"), "is missing"),
        (edit("tensors", 0, "shape", value=[64, 320]), "tensor embed_tokens.weight: offset 64: has shape [64, 320]"),
        (edit("tensors", 0, "shape", value=[320, 65]), "takes 83200"),
        (edit("tensors", 0, "shape", value=[-320, -64]), "directory.tensors[0].shape[0]: offset 64"),
        (edit("tensors", 0, "shape", value=[1 << 62] * 4), "directory.tensors[0].bytes"),
        (edit("tensors", 0, "shape", value=["320", 64]), "must be an integer, not a string"),
        (edit("tensors", 0, "format", value="q4"), "unknown numeric format 'q4', this build reads fp32, bf16"),
        (edit("tensors", 0, "layout", value="tiled"), "unknown layout 'tiled', this build reads contiguous"),
        (edit("tensors", 0, "offset", value=-256), "directory.tensors[0].offset: offset 64: must be an integer from 0"),
        (edit("tensors", 0, "offset", value=1 << 40), "tensor embed_tokens.weight: offset 64: payload bytes"),
        (edit("tensors", 0, "offset", value=1 << 80), "must be an integer from 0 to 2**63 - 1"),
        (edit("tensors", 0, "offset", value=100), "payload offset 100 is no multiple of 256"),
        (edit("tensors", 0, "offset", value=True), "must be an integer, not a boolean"),
        (edit("tensors", 1, "offset", value=13312), "overlaps tensor embed_tokens.weight"),
        (edit("tensors", 0, "bytes", value=16), "directory.tensors[0].bytes: offset 64: is 16"),
        (edit("tensors", 0, "volume", value=5), "lies in volume 5 of 1"),
        (edit("tensors", 0, "checksum", value="0" * 32), "checksum mismatch"),
        (edit("tensors", 0, "checksum", value="xyz"), "must be 32 lower-case hexadecimal digits"),
        (edit("tensors", 0, "component", value="vision"), "belongs to component 'vision'"),
        (edit("tensors", 0, "name", value="a\nb\ud800"), "must be printable"),
        (repeat("tensors"), "tensor embed_tokens.weight: offset 64: is listed twice"),
        (repeat("resources"), "resource tokenizer.json: offset 64: is listed twice"),
        (edit("volumes", value=[{"payload_bytes": 1}] * 2), "payload bytes"),
        (edit("volumes", value=[]), "lies in volume 0 of 0"),
        (edit("tensors", value={}), "directory.tensors: offset 64: must be an array, not an object"),
        (edit("provenance", value=...), "directory.provenance: offset 64: is missing"),
        (edit("metadata", "name", value=["x"]), "directory.metadata.name"),
    ],
)
def test_a_directory_that_lies(
    golden_artifact: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    assert says in refused(rewrite_directory(golden_artifact, tmp_path / "lying.ninfer", change))


@pytest.mark.parametrize(
    ("directory", "says"),
    [
        (b"[", "directory: offset 65: malformed JSON"),
        (b"\xff\xfe", "malformed JSON"),
        (b"[" * 100_000, "directory: offset 64: is nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "malformed JSON"),
        (b"[]", "must be a JSON object, not a"),
        (b"null", "must be a JSON object, not null"),
    ],
)
def test_a_directory_that_is_none(tmp_path: Path, directory: bytes, says: str) -> None:
    assert says in refused(write_directory(tmp_path / "odd.ninfer", directory, b""))


def test_the_unchanged_directory_is_accepted(golden_artifact: Path, tmp_path: Path) -> None:
    assert read_all(rewrite_directory(golden_artifact, tmp_path / "same.ninfer", lambda directory: None)) == 75


def test_a_component_this_build_does_not_know_is_left_alone(golden_artifact: Path, tmp_path: Path) -> None:
    change = edit("components", "dflash9", value={"config": {}})
    assert read_all(rewrite_directory(golden_artifact, tmp_path / "newer.ninfer", change)) == 75


@pytest.fixture(scope="module")
def volumes(golden_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of several volumes, as its folder."""
    folder = tmp_path_factory.mktemp("volumes")
    convert(golden_folder, folder / "m.ninfer", volume_limit_bytes=512 << 10)
    return folder


def _remove(folder: Path) -> None:
    (folder / "m.ninfer.part0001").unlink()


def _swap(folder: Path) -> None:
    shutil.copyfile(folder / "m.ninfer.part0002", folder / "m.ninfer.part0001")


def _shorten(folder: Path) -> None:
    os.truncate(folder / "m.ninfer.part0002", 5000)


def _flip(folder: Path) -> None:
    with open(folder / "m.ninfer.part0001", "r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xff\xff\xff\x7f")


def _other(folder: Path) -> None:
    """The same volume of an artifact with another name: same size, same tensors."""
    file = folder / "m.ninfer.part0001"
    header = read_header(memoryview(file.read_bytes()), file)
    with open(file, "r+b") as stream:
        stream.write(Header(volume=1, volumes=header.volumes, directory_bytes=0, artifact_id=bytes(16)).pack())


@pytest.mark.contract("D18")
@pytest.mark.parametrize(
    ("damage", "file", "says"),
    [
        (_remove, "m.ninfer.part0001", "cannot open: No such file or directory"),
        (_swap, "m.ninfer.part0001", "header: offset 12: is volume 2 of"),
        (_other, "m.ninfer.part0001", "header: offset 32: is a volume of another artifact than m.ninfer"),
        (_shorten, "m.ninfer.part0002", "payload: offset 5000: truncated: 5000 bytes"),
        (_flip, "m.ninfer.part0001", "offset 4096: checksum mismatch"),
    ],
)
def test_volumes(volumes: Path, tmp_path: Path, damage: Callable[[Path], None], file: str, says: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(volumes, folder)
    damage(folder)
    with pytest.raises(ArtifactError) as caught:
        read_all(folder / "m.ninfer")
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(folder / file))


def test_a_later_volume_is_no_artifact(volumes: Path) -> None:
    assert "open the artifact's first file" in refused(volumes / "m.ninfer.part0001")


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "empty", "zero byte"])
def test_things_that_are_no_files(tmp_path: Path, kind: str) -> None:
    file = tmp_path / kind
    if kind == "folder":
        file.mkdir()
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "empty":
        file.touch()
    elif kind == "zero byte":
        file = tmp_path / "a\0b"
    with pytest.raises(ArtifactError):
        Artifact.open(file)


@pytest.mark.contract("D18")
@given(data=st.data())
def test_any_changed_byte_is_found(golden_artifact: Path, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Every byte of the file is under some checksum, padding included."""
    content = bytearray(golden_artifact.read_bytes())
    region = data.draw(st.sampled_from([HEADER_BYTES, 20_000, len(content)]), label="region")
    for _ in range(data.draw(st.integers(1, 3), label="flips")):
        content[data.draw(st.integers(0, region - 1), label="at")] ^= data.draw(st.integers(1, 255), label="mask")
    file = tmp_path_factory.getbasetemp() / "flipped.ninfer"
    file.write_bytes(content)
    if content != golden_artifact.read_bytes():  # two flips of one byte may undo each other
        assert refused(file)


@pytest.mark.contract("D18")
@given(data=st.data())
def test_any_truncation_or_splice_is_found(
    golden_artifact: Path, tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    content = golden_artifact.read_bytes()
    start = data.draw(st.integers(0, len(content)), label="from")
    end = data.draw(st.integers(start, len(content)), label="to")
    damaged = content[:start] + data.draw(st.binary(max_size=64), label="instead") + content[end:]
    file = tmp_path_factory.getbasetemp() / "spliced.ninfer"
    file.write_bytes(damaged)
    if damaged != content:
        assert refused(file)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def packed_artifact(golden_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden model in many formats and both layouts."""
    file = tmp_path_factory.mktemp("packed") / "m.ninfer"
    convert(golden_folder, file, recipe=BUILT_IN["groupwise"])
    return file


@pytest.mark.parametrize("given_as", ["golden_artifact", "packed_artifact"])
@given(data=st.data())
def test_a_directory_with_any_member_replaced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, given_as: str, data: Any
) -> None:
    """Valid digests around arbitrary values: an `ArtifactError` or an artifact that reads, nothing else."""
    artifact: Path = request.getfixturevalue(given_as)

    def change(directory: dict[str, Any]) -> None:
        node: Any = directory
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            key = data.draw(st.sampled_from(keys), label="key")
            deeper = isinstance(node[key], dict | list) and node[key]
            if not deeper or data.draw(st.booleans(), label="stop"):
                node[key] = data.draw(json_values, label="value")
                return
            node = node[key]

    file = rewrite_directory(artifact, tmp_path_factory.getbasetemp() / "odd.ninfer", change)
    try:
        good = read_all(file) > 0
    except ArtifactError as error:
        good = str(error).isprintable()
    assert good


@pytest.mark.parametrize("shape", [[320, 64], [64, 320], [20480], [1, 20480], [0, 64], [1 << 40, 64], [16, 1 << 60]])
def test_a_tensor_of_another_format_layout_or_shape(packed_artifact: Path, tmp_path: Path, shape: list[int]) -> None:
    """Refused with the member's name, or, where the bytes fit, an artifact that reads; the config has the last word."""
    for form, layout in itertools.product(FORMATS, LAYOUTS):

        def change(directory: dict[str, Any], form: str = form, layout: str = layout) -> None:
            head = next(tensor for tensor in directory["tensors"] if tensor["name"] == "lm_head.weight")
            head |= {"format": form, "layout": layout, "shape": shape}

        file = rewrite_directory(packed_artifact, tmp_path / "odd.ninfer", change)
        if (form, layout, shape) == ("q6_g64", "fragment", [320, 64]):
            assert read_all(file)
        else:
            assert refused(file)


@pytest.mark.parametrize("error", [0.1, "0.1", "nan", "1.00e-2", "-1.00e-02", "1.00e-02 "])
def test_an_error_that_is_no_number(packed_artifact: Path, tmp_path: Path, error: object) -> None:
    file = rewrite_directory(
        packed_artifact, tmp_path / "odd.ninfer", lambda directory: directory["tensors"][0].update(relative_error=error)
    )
    with pytest.raises(ArtifactError, match="relative_error"):
        Artifact.open(file)


def test_names_from_damaged_files_cannot_write_to_the_terminal() -> None:
    error = ArtifactError("bad \x1b[2J", file=Path("a\nb"), object="\ud800" + "x" * 500, offset=3)
    text = str(error)
    assert text.isprintable()
    assert len(text) < 200
    assert text.startswith("a\\nb: \\ud800x")


def test_the_magic_is_no_text() -> None:
    with pytest.raises(UnicodeDecodeError):
        MAGIC.decode()
