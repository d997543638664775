"""The detokenizer: whole characters, as soon as they are whole, and the same as one decode."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.reply.detokenizer import Detokenizer

broken = st.lists(
    st.one_of(
        st.binary(max_size=4), st.text(max_size=3).map(str.encode), st.sampled_from([b"\xed\xa0\x80", b"\xf0\x9f"])
    )
).map(b"".join)


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([b"\xf0\x9f", b"\x98\x80"], ["", "😀", ""]),  # SSE-12
        ([bytes([byte]) for byte in "ď".encode()], ["", "ď", ""]),
        ([bytes([byte]) for byte in "안녕".encode()], ["", "", "안", "", "", "녕", ""]),  # SSE-13
        (["漢".encode(), "字".encode()], ["漢", "字", ""]),  # SSE-14
        ([b"A\xed\xa0\x80B"], ["A\ufffd\ufffd\ufffdB", ""]),  # SSE-19
        ([b"a\xf0\x9f"], ["a", "\ufffd"]),
        ([b"\xe2\x82", b"a"], ["", "\ufffda", ""]),
        ([], [""]),
    ],
)
def test_shown_text(pieces: list[bytes], shown: list[str]) -> None:
    detokenizer = Detokenizer()
    assert [*map(detokenizer.feed, pieces), detokenizer.finish()] == shown


@given(broken, st.sets(st.integers(0, 40)))
def test_borders_do_not_show(data: bytes, cuts: set[int]) -> None:
    borders = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    detokenizer = Detokenizer()
    shown = [detokenizer.feed(data[a:b]) for a, b in itertools.pairwise(borders)]
    assert "".join(shown) + detokenizer.finish() == data.decode("utf-8", "replace")


@given(st.text(min_size=1))
def test_each_character_goes_out_with_its_last_byte(text: str) -> None:
    detokenizer = Detokenizer()
    for character in text:
        *first, last = character.encode()
        assert detokenizer.feed(bytes(first)) == ""
        assert detokenizer.feed(bytes([last])) == character
