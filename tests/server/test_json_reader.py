"""The strict JSON reader: what it refuses, and that everything else reads as the standard reader does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import InvalidRequest
from ninfer.server.json_reader import MAX_DEPTH, MAX_VALUES, read_json


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "empty"),
        (b" ", "line 1 column 2"),
        (b"{", "line 1 column 2"),
        (b'{"a":1,}', "not JSON"),
        (b"{} {}", "Extra data"),
        (b"{'a':1}", "not JSON"),
        (b"\xef\xbb\xbf{}", "byte-order mark"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b'{"a":"\xff"}', "not UTF-8: invalid start byte at byte 6"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a":NaN}', "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e999]", 'number "1e999"'),
        (b"[" + b"9" * 5000 + b"]", "too many digits"),
        (b'{"a":1,"b":2,"a":3}', 'the member "a" twice'),
        (b'["\\ud800"]', "half of a surrogate pair"),
        (b'{"\\uDFff":1}', "half of a surrogate pair"),
        (b'["a\nb"]', "control character"),
        (b"[" * 100_000 + b"]" * 100_000, "nested deeper"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested deeper"),
        (b"[" * 100_000, "nested deeper"),
        (b"]" * 1000 + b"[" * 1000, "not JSON"),
    ],
)
def test_refused(body: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_json(body)
    assert caught.value.code == "invalid_json"
    assert said in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{" + b"".join(b'"%d":1,' % name for name in range(300_000)) + b'"299999":1}', '"299999" twice'),
        (b"[" * MAX_DEPTH + b'["' + b'\\"' * 500_000, "nested deeper"),
        (b"[" * MAX_DEPTH + b'"' + b'\\"' * 500_000, "Unterminated string"),
        (b"[" * MAX_DEPTH + b'"' + b"\\n" * 500_000 + b"\\", "not JSON"),
    ],
    ids=["member given twice", "open string inside", "open string", "open escape"],
)
def test_refusals_take_no_quadratic_time(body: bytes, said: str) -> None:
    # A megabyte or two of these took the event loop half an hour.
    with pytest.raises(InvalidRequest, match=said):
        read_json(body)


@pytest.mark.contract("EXEC-014")
def test_a_body_makes_no_millions_of_objects() -> None:
    most = b"[" + b"0," * (MAX_VALUES - 2) + b"0]"  # the array is a value too
    assert len(json.dumps(read_json(most))) > MAX_VALUES
    for body in (most[:-1] + b",0]", b"[" + b"[]," * (MAX_VALUES // 2) + b"[]]", b'{"":' + most + b"}"):
        with pytest.raises(InvalidRequest, match=f"more than {MAX_VALUES} values"):
            read_json(body)
    commas = b'["' + b"[,{" * MAX_VALUES + b'"]'
    assert read_json(commas) == ["[,{" * MAX_VALUES]


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1, MAX_DEPTH])
def test_depth_up_to_the_limit(depth: int) -> None:
    body = b"[" * depth + b"]" * depth
    assert read_json(body) == json.loads(body)
    with pytest.raises(InvalidRequest):
        read_json(b"[" + body + b"]" if depth == MAX_DEPTH else b"[" * (MAX_DEPTH + 1))


def test_brackets_in_strings_are_no_nesting() -> None:
    body = json.dumps(['"[{\\' * 3 * MAX_DEPTH, {"[" * 500: "}"}] * 3).encode()
    assert read_json(body) == json.loads(body)


def test_surrogate_pairs_are_characters() -> None:
    assert read_json(b'["\\ud83d\\ude00", "\\\\ud800"]') == ["😀", "\\ud800"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(values, st.booleans())
def test_reads_what_was_written(value: object, ascii_only: bool) -> None:
    assert read_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.binary(max_size=60) | st.text('[]{}":,\\u0dDeE19.-tfn \n', max_size=60).map(str.encode))
def test_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        read = read_json(body)
    except InvalidRequest:
        return
    assert read == json.loads(body.decode())
