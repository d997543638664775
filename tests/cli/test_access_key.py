"""The one API key of `serve`: from an option, a file or the environment, and what is said where there is none."""

import logging
from pathlib import Path

import pytest

from ninfer.cli.access_key import VARIABLE, api_key, record_access
from ninfer.cli.failure import Failure
from ninfer.cli.options import NetworkOptions


def network(tmp_path: Path, *, key: str | None = None, file: bytes | None = None, cors: bool = False) -> NetworkOptions:
    path = tmp_path / "key"
    if file is not None:
        path.write_bytes(file)
        path.chmod(0o600)
    return NetworkOptions(api_key=key, api_key_file=None if file is None else path, cors=cors)


@pytest.mark.contract("OPT-003")
@pytest.mark.parametrize(
    ("option", "file", "variable", "key"),
    [
        (None, None, None, None),
        ("a", None, None, "a"),
        (None, b"b", None, "b"),
        (None, b"b\n", None, "b"),
        (None, "ö-1\r\n".encode(), None, "ö-1"),
        (None, None, "c", "c"),
        ("a", None, "c", "a"),  # an option is stronger than the environment
        (None, b"b\n", "c", "b"),
        (None, b"b\n", "", "b"),
    ],
)
def test_where_the_key_is_from(
    option: str | None, file: bytes | None, variable: str | None, key: str | None, tmp_path: Path
) -> None:
    environment = {} if variable is None else {VARIABLE: variable}
    assert api_key(network(tmp_path, key=option, file=file), environment) == key


@pytest.mark.contract("OPT-003", "OPT-077")
@pytest.mark.parametrize(
    ("option", "file", "variable", "said"),
    [
        ("a", b"a", None, "--api-key and --api-key-file: give only one"),
        (None, b"", None, "white space"),
        (None, b"\n", None, "white space"),
        (None, b" a\n", None, "white space"),
        (None, b"a\nb\n", None, "white space"),
        (None, b"\xff", None, "not UTF-8"),
        (None, bytes(1 << 14), None, "larger than 8192 bytes"),
        (None, None, "", f"{VARIABLE}: expected"),  # a variable that was meant to hold a key: nobody is let in by it
        (None, None, "a ", f"{VARIABLE}: expected"),
    ],
)
def test_what_is_no_key_ends_the_start(
    option: str | None, file: bytes | None, variable: str | None, said: str, tmp_path: Path
) -> None:
    environment = {} if variable is None else {VARIABLE: variable}
    with pytest.raises(Failure, match=said):
        api_key(network(tmp_path, key=option, file=file), environment)


@pytest.mark.parametrize(("path", "said"), [("none", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read(path: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=f"--api-key-file .*: {said}"):
        api_key(NetworkOptions(api_key_file=tmp_path / path), {})


def test_a_file_without_end_is_read_no_further_than_a_key_goes() -> None:
    with pytest.raises(Failure, match="larger than"):
        api_key(NetworkOptions(api_key_file=Path("/dev/zero")), {})


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o604, 0o644])
def test_a_file_that_everybody_reads_is_told(mode: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = network(tmp_path, file=b"k")
    (tmp_path / "key").chmod(mode)
    assert api_key(asked, {}) == "k"
    assert ("every user of this machine can read it" in caplog.text) is bool(mode & 0o004)


@pytest.mark.parametrize(
    ("address", "cors", "key", "said"),
    [
        ("127.0.0.1", False, None, []),
        ("::1", False, None, []),
        ("::ffff:127.0.0.1", False, None, []),
        ("0.0.0.0", False, None, ["every program that reaches 0.0.0.0"]),
        ("::", False, None, ["every program that reaches ::"]),
        ("192.168.1.5", True, None, ["every program that reaches 192.168.1.5", "--cors without a key"]),
        ("127.0.0.1", True, None, ["--cors without a key"]),
        ("0.0.0.0", True, "k", []),
    ],
)
def test_who_is_let_in_is_told(
    address: str, cors: bool, key: str | None, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    record_access(NetworkOptions(cors=cors), address, key)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * len(said)
    for record, part in zip(caplog.records, said, strict=True):
        assert part in record.getMessage()
