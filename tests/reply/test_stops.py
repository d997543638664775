"""Stop strings against a reference that looks at the whole text."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.reply.stops import TRIED_CHARS, StopCutter


def cut(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    cutter = StopCutter(stops)
    shown = "".join(map(cutter.feed, pieces))
    return shown + cutter.finish(), cutter.hit


@pytest.mark.contract("CHAT-015")
@pytest.mark.parametrize(
    ("stops", "pieces", "shown"),
    [
        (["DEFGHIJ"], ["ABC", "DEF", "GHI", "JK"], "ABC"),  # SSE-15: nothing of the stop leaks
        (["\n"], ["really?\n"], "really?"),  # SSE-16: the useful half of a token stays
        (["STOP"], ["all of ST"], "all of ST"),  # held text is not lost at the end
        (["beta gamma"], ["alpha", " beta", " gamma", " delta"], "alpha "),  # SSE-18
        (["b", "aba"], ["aba"], "a"),  # the one that is complete first
        (["b", "ab"], ["ab"], ""),  # complete together: the longer one
        (["aab"], ["aaab"], "a"),
        ([], ["text"], "text"),
        (["漢字"], ["漢", "字"], ""),
    ],
)
def test_shown_text(stops: list[str], pieces: list[str], shown: str) -> None:
    assert cut(stops, pieces)[0] == shown


stop_lists = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=4)


def reference(stops: list[str], text: str) -> tuple[str, str | None]:
    """The stop complete first, the longest of those; by looking at every prefix of the whole text."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(st.text("ab\n", max_size=40), stop_lists, st.data())
def test_result_does_not_depend_on_borders(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
    assert cut(stops, pieces) == reference(stops, text)


@given(st.text("ab\n", max_size=30), stop_lists)
def test_nothing_is_held_longer_than_it_must_be(text: str, stops: list[str]) -> None:
    cutter = StopCutter(stops)
    shown = ""
    for at, character in enumerate(text):
        shown += cutter.feed(character)
        if cutter.hit is not None:
            return
        held = text[len(shown) : at + 1]
        assert not held or any(len(stop) > len(held) and stop.startswith(held) for stop in stops)


long_stops = st.lists(
    st.builds(
        lambda period, tail: (period * TRIED_CHARS)[: TRIED_CHARS + 5] + tail,
        st.text("ab", min_size=1, max_size=3),
        st.text("abc", max_size=3),
    ),
    min_size=1,
    max_size=2,
)


@settings(max_examples=40)
@given(long_stops, st.integers(1, 3), st.integers(0, 8), st.text("abc", max_size=5), st.integers(1, 700))
def test_stops_that_are_followed_for_long(
    stops: list[str], times: int, missing: int, after: str, piece_chars: int
) -> None:
    text = stops[0][: len(stops[0]) - missing] * times + after
    pieces = [text[at : at + piece_chars] for at in range(0, len(text), piece_chars)]
    assert cut(stops, pieces) == reference(stops, text)


def test_a_reply_that_leaves_a_long_stop_takes_no_quadratic_time() -> None:
    # Trying each length took this eight seconds, in which every stream stood still.
    text = "a" * 1_000_000
    assert cut([text + "b"], [text, "c"]) == (text + "c", None)
