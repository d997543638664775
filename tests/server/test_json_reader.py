"""The strict JSON reader: what it refuses, and that everything else reads as the standard reader does."""

import contextlib
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import InvalidRequest
from ninfer.server.json_reader import MAX_DEPTH, MAX_DIGITS, MAX_VALUES, MOST_SPACES, read_json
from ninfer.server.json_strings import PIECE_BYTES, NotJSON, read_string


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


MIB = 1 << 20
OPENERS = b"[" + b"[]," * 300


@pytest.mark.contract("EXEC-014")
@pytest.mark.parametrize(
    ("body", "most"),
    [
        (OPENERS + b'"",' * (4 * MIB) + b"0]", 0.5),  # each string in it once took 180 bytes
        (OPENERS + b'""' * (4 * MIB), 0.5),
        (OPENERS + b'"' + b"[,{" * (3 * MIB) + b'"]', 2.1),
        (b'["' + b"x" * (8 * MIB) + b'"]', 2.1),
        (b'["' + "é".encode() * (4 * MIB) + b'"]', 2.1),
        (b'["' + b"\\n" * (4 * MIB) + b'"]', 2.1),
        (b'["' + "😀".encode() + b"x" * (8 * MIB) + b'"]', 5.1),  # one such makes four bytes of every character
        (b"[" + b" " * (8 * MIB) + b"]", 0.1),
        (b"[" + b"\xff" * (8 * MIB) + b"]", 0.1),
        (b'["' + b"\xff" * (8 * MIB) + b'"]', 0.1),
        (b'["' + b"x" * (8 * MIB), 1.1),
        (b'["\\ud83d' + b"x" * (8 * MIB) + b'"]', 5.1),
        (b"[" + b"9" * (8 * MIB) + b"]", 0.1),
    ],
    ids=[
        *("strings", "strings without commas", "marks in a string", "text", "accents", "escapes", "emoji"),
        *("spaces", "no UTF-8", "no UTF-8 in a string", "open string", "half a character", "digits"),
    ],
)
def test_memory_for_each_byte_of_a_body(body: bytes, most: float) -> None:
    """`most` bytes of peak memory for each byte of the body, the value included."""
    tracemalloc.start()
    try:
        with contextlib.suppress(InvalidRequest):
            read_json(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= most * len(body) + 4 * PIECE_BYTES


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


@given(
    st.text(st.sampled_from('a"\\/\b\n\x1fé€😀\ud83d\ude00\ud800u0'), max_size=60), st.booleans(), st.integers(12, 30)
)
def test_a_string_reads_the_same_in_pieces(text: str, ascii_only: bool, piece_bytes: int) -> None:
    text = text if ascii_only else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    spelled = json.dumps(text, ensure_ascii=ascii_only)
    assert read_string(f"{spelled} ".encode(), 1, piece_bytes) == (json.loads(spelled), len(spelled.encode()))


@given(st.text('"\\ubn0dD89cCé😀\n', max_size=40), st.integers(12, 30))
def test_what_no_string_may_hold_is_found_in_pieces(inside: str, piece_bytes: int) -> None:
    body = f'"{inside}'.encode()
    try:
        found, end = read_string(body, 1, piece_bytes)
    except NotJSON:
        with pytest.raises(json.JSONDecodeError):
            json.JSONDecoder().raw_decode(body.decode())
    else:
        assert json.loads(body[:end]) == found


@pytest.mark.parametrize("spaces", [0, 1, MOST_SPACES - 1, MOST_SPACES, MOST_SPACES + 1, 3 * MOST_SPACES])
def test_spaces_are_passed_over_wherever_they_may_stand(spaces: int) -> None:
    gap = b" " * spaces
    body = gap.join([b"", b"{", b'"a"', b":", b"[", b"]", b",", b'"b"', b":", b"{", b"}", b"}", b""])
    assert read_json(body) == {"a": [], "b": {}}
    with pytest.raises(InvalidRequest, match=r"Extra data at line 1 column"):
        read_json(body + b"0")


@pytest.mark.parametrize("digits", ["9" * MAX_DIGITS, f"0.{'3' * MAX_DIGITS}", f"1e-{'0' * (MAX_DIGITS - 1)}1"])
def test_the_longest_numbers(digits: str) -> None:
    assert read_json(f"[{digits}]".encode()) == json.loads(f"[{digits}]")
    with pytest.raises(InvalidRequest, match="too many digits"):
        read_json(f"[{digits}1]".encode())


def test_places_are_told_in_lines_and_characters() -> None:
    body = '{\n"é😀": "' + "é" * PIECE_BYTES + '" x'
    with pytest.raises(InvalidRequest, match=f"at line 2 column {len(body) - 2}$"):
        read_json(body.encode())
    torn = b'["' + "é".encode() * PIECE_BYTES + b'\xc3"]'
    with pytest.raises(InvalidRequest, match=f"at byte {len(torn) - 3}$"):
        read_json(torn)
