"""Replies as a whole: channels, markers, hidden tokens, stops, counts; and that grouping never shows."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.reply import ReplyReader, ReplyTokens
from tests.reply.test_stops import reference as reference_cut
from tests.reply.vocabulary import CLOSE, END, MARKERS, OPEN, Vocabulary, joined, read


@pytest.mark.contract("THINK-019")
@pytest.mark.parametrize(
    ("reply", "opens", "reasoning", "answer"),
    [
        ("plain", False, "", "plain"),
        ("why\n</think>\n\nyes", True, "why", "yes"),
        ("\nwhy\n\nso\n\n</think>\n\n\nyes\n", True, "why\n\nso", "yes\n"),
        ("why\r\n</think>\r\n\r\nyes", True, "why", "yes"),
        ("<think>\nwhy\n</think>\n\nyes", False, "why", "yes"),  # RSN-03: the opener is in neither
        (" \n<think>\nwhy\n</think>\n\nyes", False, "why", "yes"),
        ("<think>\nwhy\n</think>\n\nyes", True, "why", "yes"),  # opened by the prompt and again by the model
        ("\n\n  plain", False, "", "\n\n  plain"),
        (" \n", False, "", " \n"),
        ("4", False, "", "4"),  # RSN-01: the prompt closed the block
        ("still thinking\n", True, "still thinking\n", ""),
        ("why\n</think>", True, "why", ""),  # the end of the turn closes
        ("why\n</think><|im_end|>", True, "why", ""),
        ("</think>\n\nyes", True, "", "yes"),
        ("a </think> b\n</think>\nyes", True, "a </think> b", "yes"),  # a quoted marker stays
        ("a</think>.\n</think>\n", True, "a</think>.", ""),
        ("a\n</think></think>\nyes", True, "a\n</think>", "yes"),
        ("a</think><tool_call>\n", True, "a</think><tool_call>\n", ""),
        ("a<think>b</think>\nc", True, "a<think>b", "c"),
        ("a<think>b</think>\nc", False, "", "a<think>b</think>\nc"),  # no block may open behind the first word
        ("<think>a\n</think>\n\n<think>b\n</think>\nc", False, "a", "<think>b\n</think>\nc"),
        ("</think>\n\nyes", False, "", "</think>\n\nyes"),
        ("I must not emit <tool_call>x</tool_call> here.</think>\nDone.", True, None, "Done."),  # TOOL-11
        ("<tool_call>\nx\n</tool_call>", False, "", "<tool_call>\nx\n</tool_call>"),
        ("a<|im_start|>b<|im_end|>", False, "", "ab"),
    ],
)
def test_channels(reply: str, opens: bool, reasoning: str | None, answer: str) -> None:
    if reasoning is None:
        reasoning = reply.partition("</think>")[0]
    for cuts in (None, [], [2], [1, 3, 8]):
        assert read(reply, opens_in_reasoning=opens, cuts=cuts) == (reasoning, answer)


def test_a_marker_ends_a_broken_character() -> None:
    assert read(b"a\xe2\x82</think>\nb", opens_in_reasoning=True) == ("a\ufffd", "b")
    assert read(b"a\xe2\x82<think>\x82b") == ("", "a\ufffd<think>\ufffdb")
    assert read(b"\xf0\x9f<|im_start|>\x98\x80") == ("", "😀")  # a hidden token is nowhere


def test_text_that_spells_a_marker_is_text() -> None:
    vocabulary = Vocabulary()
    reader = vocabulary.reader(opens_in_reasoning=True)
    tokens = [vocabulary.token(piece) for piece in (b"a\n</", b"think", b">\n\nb<|im_end|>")]
    assert joined([*reader.feed(tokens), *reader.finish()]) == ("a\n</think>\n\nb<|im_end|>", "")


def test_half_a_marker_at_the_end_is_shown_in_its_channel() -> None:
    """SSE-17."""
    assert read("a</thi", opens_in_reasoning=True) == ("a</thi", "")
    assert read("a</thi") == ("", "a</thi")


def test_without_think_tokens_there_is_one_channel() -> None:
    vocabulary = Vocabulary()
    reader = ReplyReader(ReplyTokens(token_bytes=vocabulary.bytes_of))
    assert joined([*reader.feed(vocabulary.tokens("<think>\na")), *reader.finish()]) == ("", "<think>\na")


@pytest.mark.parametrize(
    ("reply", "stops", "reasoning", "answer", "stop"),
    [
        ("why\n</think>\n\nyes no", ["no"], "why", "yes ", "no"),
        ("why not\n</think>\n\nyes", ["not"], "why ", "", "not"),
        ("why\n</think>\n\nyes", ["\n\n"], "why", "yes", None),  # framing is not shown, so it does not stop
        ("a\n\nb\n</think>\n\nyes", ["\n\n"], "a", "", "\n\n"),
        ("wh\n</think>\n\ny", ["why"], "wh", "y", None),  # a stop lies within one channel
        ("why\n</think>\n\nyes n", ["no"], "why", "yes n", None),  # held back until the end, then shown
        ("a\n", ["\n"], "a", "", "\n"),  # the held line break completes it at the end
        ("quoted </think> here", ["</think>"], "quoted ", "", "</think>"),
    ],
)
@pytest.mark.contract("CHAT-015")
def test_stops(reply: str, stops: list[str], reasoning: str, answer: str, stop: str | None) -> None:
    vocabulary = Vocabulary()
    reader = vocabulary.reader(opens_in_reasoning=True, stops=stops)
    assert joined([*reader.feed(vocabulary.tokens(reply)), *reader.finish()]) == (reasoning, answer)
    assert reader.stop == stop


def test_tokens_after_a_stop_are_not_read() -> None:
    vocabulary = Vocabulary()
    reader = vocabulary.reader(stops=["c"])
    assert joined(reader.feed([vocabulary.token(piece) for piece in (b"ab", b"xcx", b"d", b"e")])) == ("", "abx")
    assert (reader.stop, reader.consumed_tokens, reader.feed([vocabulary.token(b"f")])) == ("c", 2, [])
    assert reader.finish() == []
    assert reader.consumed_tokens == 2


@pytest.mark.parametrize(
    ("pieces", "opens", "reasoning_tokens"),
    [
        ([b"a", b"b"], False, 0),
        ([b"a", b"\n", CLOSE, b"\n\n", b"b", END], True, 3),
        ([OPEN, b"\n", b"a", CLOSE, b"\n", b"b"], False, 4),
        ([CLOSE, b"\n\n", b"b"], True, 1),
        ([b"a", CLOSE, b" b", END], True, 3),  # quoted
        ([b"a", END], True, 1),
        ([b" ", b"a", OPEN], False, 0),
    ],
)
def test_reasoning_tokens(pieces: list[bytes | int], opens: bool, reasoning_tokens: int) -> None:
    vocabulary = Vocabulary()
    reader = vocabulary.reader(opens_in_reasoning=opens)
    reader.feed([vocabulary.token(piece) if isinstance(piece, bytes) else piece for piece in pieces])
    reader.finish()
    assert (reader.reasoning_tokens, reader.consumed_tokens) == (reasoning_tokens, len(pieces))


def test_text_goes_out_with_its_token() -> None:
    vocabulary = Vocabulary()
    reader = vocabulary.reader(opens_in_reasoning=True)
    pieces: list[bytes | int] = [
        b"\n",
        b"Why ",
        b"so?\n",
        b"Well.",
        b"\n",
        CLOSE,
        b"\n\n",
        b"Yes",
        b" ",
        b"\xf0\x9f",
        b"\x98\x80",
    ]
    tokens = [vocabulary.token(piece) if isinstance(piece, bytes) else piece for piece in pieces]
    shown = [reader.feed([token]) for token in tokens]
    texts = ["".join(delta.text for delta in deltas) for deltas in shown]
    assert texts == ["", "Why ", "so?", "\nWell.", "", "", "", "Yes", " ", "", "😀"]


fragments = st.one_of(
    st.sampled_from([*(marker.encode() for marker in MARKERS), b"\n", b"\n\n", b" ", b"a", b"ab", b"b\n"]),
    st.binary(max_size=3),
    st.text("aé漢😀\u2028\u0338", max_size=3).map(str.encode),
)
replies = st.lists(fragments, max_size=12).map(b"".join)
stop_lists = st.lists(st.text("ab\n ", min_size=1, max_size=3), max_size=3)


@given(replies, st.booleans(), stop_lists, st.data())
def test_neither_token_borders_nor_grouping_show(
    reply: bytes, opens: bool, stops: list[str], data: st.DataObject
) -> None:
    vocabulary = Vocabulary()
    tokens = vocabulary.tokens(reply, data.draw(st.sets(st.integers(0, max(len(reply), 1)))))
    whole, parted = (vocabulary.reader(opens_in_reasoning=opens, stops=stops) for _ in range(2))
    expected = joined([*whole.feed(tokens), *whole.finish()])
    groups = sorted(data.draw(st.sets(st.integers(0, len(tokens)))) | {0, len(tokens)})
    shown = [delta for a, b in itertools.pairwise(groups) for delta in parted.feed(tokens[a:b])]
    assert joined([*shown, *parted.finish()]) == expected
    assert parted.stop == whole.stop
    assert parted.consumed_tokens == whole.consumed_tokens
    assert parted.reasoning_tokens == whole.reasoning_tokens
    assert read(reply, opens_in_reasoning=opens, stops=stops) == expected  # a token per byte


def reference(reply: bytes, opens: bool) -> tuple[str, str]:
    """(reasoning, answer) by looking at the whole reply: all else is hidden tokens, markers and framing line breaks."""
    for marker, stand_in in (("<think>", "\ue000"), ("</think>", "\ue001"), ("<|im_start|>", ""), ("<|im_end|>", "")):
        reply = reply.replace(marker.encode(), stand_in.encode())
    text = reply.decode("utf-8", "replace")
    opener = re.match("[\r\n]*\ue000?" if opens else r"\s*\ue000", text)
    reasoning, answer = "", text
    if opener is not None:
        body = text[opener.end() :].lstrip("\r\n")
        closer = re.search("\ue001(?=[\r\n]|$(?![\r\n]))", body)
        reasoning, answer = body, ""
        if closer is not None:
            reasoning, answer = body[: closer.start()].rstrip("\r\n"), body[closer.end() :].lstrip("\r\n")
    spelled = {0xE000: "<think>", 0xE001: "</think>"}
    return reasoning.translate(spelled), answer.translate(spelled)


@pytest.mark.contract("THINK-019", "CHAT-015")
@given(replies, st.booleans(), stop_lists)
def test_no_byte_is_lost(reply: bytes, opens: bool, stops: list[str]) -> None:
    reasoning, answer = reference(reply, opens)
    assert read(reply, opens_in_reasoning=opens) == (reasoning, answer)
    cut_reasoning, stop = reference_cut(stops, reasoning)
    expected = (cut_reasoning, "" if stop else reference_cut(stops, answer)[0])
    assert read(reply, opens_in_reasoning=opens, stops=stops) == expected
