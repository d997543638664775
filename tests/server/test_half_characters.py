"""Halves of surrogate pairs: mended at the places of text, refused with their path everywhere else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import InvalidRequest
from ninfer.server.json_reader import read_json

TEXTS = ("said", "turns[].text", "turns[].parts[].text", "calls[].arguments.**")
HALF, MENDED = "a\ud83d", "a\ufffd"


def read(value: object, texts: tuple[str, ...] = TEXTS) -> Any:
    return read_json(json.dumps(value).encode(), texts)


@pytest.mark.parametrize(
    ("body", "mended"),
    [
        ({"said": HALF}, {"said": MENDED}),
        ({"said": "\ude00\ud83d\ude00\ud83d"}, {"said": "\ufffd😀\ufffd"}),
        ({"turns": [{"text": "x"}, {"text": HALF}]}, {"turns": [{"text": "x"}, {"text": MENDED}]}),
        ({"turns": [{"parts": [{"text": HALF}]}]}, {"turns": [{"parts": [{"text": MENDED}]}]}),
        ({"calls": [{"arguments": HALF}]}, {"calls": [{"arguments": MENDED}]}),
        (
            {"calls": [{"arguments": {HALF: [{"x": HALF}], "b": 1}}]},
            {"calls": [{"arguments": {MENDED: [{"x": MENDED}], "b": 1}}]},
        ),
    ],
)
def test_text_is_mended(body: object, mended: object) -> None:
    assert read(body) == mended


@pytest.mark.contract("ERR-005")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": HALF}, "name"),
        ({"turns": HALF}, "turns"),
        ({"turns": [HALF]}, "turns[0]"),
        ({"turns": {"text": HALF}}, "turns.text"),
        ({"turns": [{"id": HALF, "text": "x"}]}, "turns[0].id"),
        ({"turns": [{"text": [HALF]}]}, "turns[0].text[0]"),
        ({"said": {HALF: 1}}, "said.a\\ud83d"),
        ({HALF: 1}, "a\\ud83d"),
        ({"text": HALF, "x": [[{"y": HALF}]]}, "text"),
    ],
)
def test_elsewhere_it_is_refused_with_its_place(body: object, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(body)
    assert (caught.value.code, caught.value.param) == ("invalid_json", param)
    assert caught.value.message.startswith(f"{param}: the string ")


@pytest.mark.parametrize("body", [HALF, [HALF], {"said": HALF}])
def test_without_places_every_half_is_refused(body: object) -> None:
    with pytest.raises(InvalidRequest, match="half of a surrogate pair"):
        read(body, ())


halves = st.text(st.characters(codec=None, categories=None) | st.sampled_from("\ud83d\ude00"), max_size=4)
values = st.recursive(
    halves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["said", "turns", "text", "calls", "arguments", HALF]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_what_is_read_can_be_written(value: object) -> None:
    try:
        found = read(value)
    except InvalidRequest:
        return
    json.dumps(found, ensure_ascii=False).encode()
