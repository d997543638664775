"""The safetensors reader agrees with the reference package, and refuses what is malformed."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from ninfer.engine.artifact import ArtifactError
from ninfer.engine.artifact.safetensors import SafetensorsFile
from tests.engine.artifact.damage import write_safetensors


def test_agrees_with_the_reference_package(golden_folder: Path) -> None:
    expected = load_file(golden_folder / "model.safetensors")
    opened = SafetensorsFile(golden_folder / "model.safetensors")
    assert set(opened.entries) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(opened.read(name), values)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_stored_types(tmp_path: Path, dtype: type) -> None:
    values = np.linspace(-2, 2, 12).astype(dtype).reshape(3, 4)
    write_safetensors(tmp_path / "m.safetensors", {"a": values, "scalar": np.asarray(values[0, 0])})
    opened = SafetensorsFile(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(opened.read("a"), values)
    assert opened.read("scalar").shape == ()


def raw(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.contract("D18")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "header: offset 0: truncated"),
        (b"\x01\x02", "header: offset 2: truncated"),
        (raw({})[:-1], "header: offset 0: header of 2 bytes does not fit"),
        (b"\xff" * 8 + b"{}", "does not fit"),
        (raw(b"{nope"), "offset 9: malformed JSON"),
        (raw(b"[" * 100_000), "nested too deeply"),
        (raw(b'{"a":{},"a":{}}'), "offset 8: malformed JSON: member 'a' stands there twice"),
        (raw([]), "must be a JSON object, not an array"),
        (raw({"a": 1}), "a: offset 8: must be a JSON object"),
        (raw({"a": {}}), "a.dtype: offset 8: is missing"),
        (raw({"a": entry("Q4")}, bytes(8)), "a.dtype: offset 8: unknown type 'Q4'"),
        (raw({"a": entry(7)}, bytes(8)), "a.dtype: offset 8: must be a string"),
        (raw({"a": entry(shape="2")}, bytes(8)), "a.shape: offset 8: must be an array"),
        (raw({"a": entry(shape=(-2,))}, bytes(8)), "a.shape[0]: offset 8: must be an integer from 0"),
        (raw({"a": entry(shape=(3,))}, bytes(8)), "has 8 bytes, but F32 [3] takes 12"),
        (raw({"a": entry(shape=(1 << 62, 1 << 62))}, bytes(8)), "a.data_offsets"),
        (raw({"a": entry()}, bytes(7)), "[0, 8] lies outside the file's 7 bytes of data"),
        (raw({"a": entry(offsets=(8, 0))}, bytes(8)), "lies outside"),
        (raw({"a": entry(offsets=(-8, 0))}, bytes(8)), "a.data_offsets[0]"),
        (raw({"a": entry(offsets=(0,))}, bytes(8)), "lies outside"),
        (raw({"a": entry(offsets=(0.0, 8.0))}, bytes(8)), "must be an integer, not a number"),
        (raw({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)), "tensor b: offset"),
    ],
)
def test_malformed_files(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "m.safetensors"
    file.write_bytes(content)
    with pytest.raises(ArtifactError) as caught:
        SafetensorsFile(file)
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(file))


def test_a_type_that_cannot_be_converted_is_named_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(raw({"a": entry("I64", (1,))}, bytes(8)))
    opened = SafetensorsFile(tmp_path / "m")
    with pytest.raises(ArtifactError, match=r"tensor a: offset \d+: has type I64"):
        opened.read("a")


@given(data=st.data())
def test_mutated_headers(tmp_path_factory: pytest.TempPathFactory, golden_folder: Path, data: Any) -> None:
    """Any bytes in place of some of the header: an `ArtifactError`, or a file whose tensors can all be read."""
    content = bytearray((golden_folder / "model.safetensors").read_bytes())
    for _ in range(data.draw(st.integers(1, 4), label="places")):
        at = data.draw(st.integers(0, 7300), label="at")
        instead = data.draw(st.binary(max_size=6), label="instead")
        content[at : at + data.draw(st.integers(0, 6), label="length")] = instead
    file = tmp_path_factory.getbasetemp() / "mutated.safetensors"
    file.write_bytes(content)
    try:
        opened = SafetensorsFile(file)
        shapes = {name: opened.read(name).shape for name in opened.entries}
    except ArtifactError as error:
        assert str(error).isprintable()  # noqa: PT017
    else:
        assert shapes == {name: entry.shape for name, entry in opened.entries.items()}
