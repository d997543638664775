"""The tokenizer: control tokens, exact bytes, and what is refused at load."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from ninfer.prompt import BadTokenizer, Tokenizer
from ninfer.prompt.byte_level import spell, to_bytes
from ninfer.prompt.tokenizer import SLICE_CHARS
from tests.prompt import published, tiny

TINY = tiny.tokenizer()
REFERENCE = tokenizers.Tokenizer.from_str(json.dumps(tiny.tokenizer_json()))

pieces = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [*tiny.CONTROLS, "<", "<|im_", "end|>", "</", "think", ">", "\n", "  ", "é", "e\u0301", "😀", "안녕"]
    ),
)
texts = st.lists(pieces, max_size=8).map("".join)


def load(data: dict[str, Any], **files: bytes) -> Tokenizer:
    return Tokenizer.from_files(json.dumps(data).encode(), **files)


@given(st.binary())
def test_the_alphabet_spells_every_byte_string(data: bytes) -> None:
    assert to_bytes(spell(data)) == data


@pytest.mark.parametrize("text", [" ", "\u0144x", "中", "\xad"])
def test_what_is_not_of_the_alphabet(text: str) -> None:
    with pytest.raises(ValueError, match="byte-level"):
        to_bytes(text)


@given(texts)
def test_encode_agrees_with_the_library(text: str) -> None:
    assert list(TINY.encode(text)) == REFERENCE.encode(text, add_special_tokens=False).ids


@given(texts)
def test_bytes_of_the_ids_are_the_normalised_text(text: str) -> None:
    # Normalisation stops at control tokens, so the whole is normalised piece by piece.
    expected = "".join(
        unicodedata.normalize("NFC", plain) + (TINY.decode((control,)) if control is not None else "")
        for plain, control in TINY.split(text)
    )
    assert TINY.decode(TINY.encode(text)) == expected
    assert TINY.decode(TINY.encode_plain(text)) == unicodedata.normalize("NFC", text)


@given(texts)
def test_plain_text_never_becomes_a_control_token(text: str) -> None:
    assert not set(TINY.encode_plain(text)) & set(TINY.control_tokens.values())


@pytest.mark.parametrize("control", tiny.CONTROLS)
def test_control_tokens(control: str) -> None:
    token = TINY.control_tokens[control]
    assert TINY.encode(control) == (token,)
    assert TINY.token_bytes(token) == control.encode()
    assert (token in TINY.special_tokens) == (control in tiny.SPECIAL)
    assert len(TINY.encode_plain(control)) > 1


def test_a_control_token_in_the_base_vocabulary_and_its_merges_stays_out_of_plain_text() -> None:
    data = tiny.tokenizer_json(controls=())
    vocabulary, merges = data["model"]["vocab"], data["model"]["merges"]
    for merge in (["think", ">"], ["<", "think>"]):
        vocabulary["".join(merge)] = len(vocabulary)
        merges.append(merge)
    token = vocabulary["<think>"]
    data["added_tokens"] = [{"id": token, "content": "<think>", "special": False}]
    tokenizer = load(data)
    assert tokenizer.encode("a<think>b")[1] == token
    assert token not in tokenizer.encode_plain("a<think>b")
    assert tokenizer.decode(tokenizer.encode_plain("a<think>b")) == "a<think>b"


def test_nothing_is_added_around_a_text() -> None:
    added = {"<|im_start|>": {"id": "<|im_start|>", "ids": [271], "tokens": ["<|im_start|>"]}}
    around = [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    processor = {"type": "TemplateProcessing", "single": around, "pair": around, "special_tokens": added}
    tokenizer = load(tiny.tokenizer_json(post_processor=processor))
    assert tokenizer.encode("a<think>b") == TINY.encode("a<think>b")


def test_longest_control_token_wins() -> None:
    tokenizer = tiny.tokenizer(("<a>", "<a>b", "<|im_end|>"))
    assert tokenizer.encode("<a>b") == (tokenizer.control_tokens["<a>b"],)


def test_added_tokens_of_the_configuration_are_control_tokens_too() -> None:
    entry = {"content": "<think>", "special": False}
    config = json.dumps({"added_tokens_decoder": {"300": entry}}).encode()
    tokenizer = load(tiny.tokenizer_json(controls=()), tokenizer_config=config)
    assert tokenizer.control_tokens == {"<think>": 300}
    assert tokenizer.vocabulary_tokens == 301
    assert tokenizer.encode("<think>") == (300,)
    assert tokenizer.token_bytes(299) == b""
    with pytest.raises(ValueError, match="outside the vocabulary"):
        tokenizer.token_bytes(301)


@pytest.mark.parametrize(
    ("generation", "config", "stops"),
    [
        (None, {}, set()),
        ({"eos_token_id": 5}, {}, {5}),
        ({"eos_token_id": [5, 6]}, {"eos_token": "<|im_end|>"}, {5, 6, "<|im_end|>"}),
        (None, {"eos_token": {"content": "<|endoftext|>"}}, {"<|endoftext|>"}),
        ({}, {"eos_token": None}, set()),
    ],
)
def test_stop_tokens(generation: object, config: object, stops: set[int | str]) -> None:
    tokenizer = load(
        tiny.tokenizer_json(),
        tokenizer_config=json.dumps(config).encode(),
        **({} if generation is None else {"generation_config": json.dumps(generation).encode()}),
    )
    assert tokenizer.stop_tokens == {
        tokenizer.control_tokens[stop] if isinstance(stop, str) else stop for stop in stops
    }
    assert tokenizer.hidden_tokens == tokenizer.stop_tokens | tokenizer.special_tokens


def _added(**changes: object) -> dict[str, Any]:
    return tiny.tokenizer_json(added_tokens=[{"id": 400, "content": "<x>", "special": True, **changes}])


@pytest.mark.parametrize(
    ("data", "config", "message"),
    [
        (tiny.tokenizer_json(model={"vocab": None}), {}, "model.vocab"),
        (tiny.tokenizer_json(model={"vocab": {"a": "0"}}), {}, "model.vocab"),
        (tiny.tokenizer_json(model={"vocab": {"a": 0, "b": 0}}), {}, "several spellings"),
        (tiny.tokenizer_json(decoder={"type": "Metaspace"}), {}, "decoder.type"),
        (tiny.tokenizer_json(model={"type": "BPE", "vocab": {"▁a": 0}, "merges": []}), {}, "byte-level alphabet"),
        (tiny.tokenizer_json(model={"type": "Nonsense", "vocab": {"a": 0}, "merges": []}), {}, "tokenizer.json"),
        (_added(lstrip=True), {}, "lstrip is not supported"),
        (_added(content=""), {}, r"added_tokens\[0\]"),
        (_added(id=3), {}, "id 3 already belongs"),
        (_added(), {"added_tokens_decoder": {"400": {"content": "<y>"}}}, "<x>"),
        (_added(), {"added_tokens_decoder": {"401": {"content": "<x>"}}}, "401 here and 400"),
        (_added(), {"added_tokens_decoder": {"x": {}}}, "expected an id"),
        (_added(), {"added_tokens_decoder": []}, None),
        (_added(), {"added_tokens_decoder": [1]}, "unknown form"),
        (_added(), {"eos_token": "<z>"}, "no added token"),
        (_added(), [], "expected a JSON object"),
    ],
)
def test_refused_files(data: dict[str, Any], config: object, message: str | None) -> None:
    files = {"tokenizer_config": json.dumps(config).encode()}
    if message is None:
        load(data, **files)
        return
    with pytest.raises(BadTokenizer, match=message):
        load(data, **files)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_files_that_are_no_json_object(data: bytes) -> None:
    with pytest.raises(BadTokenizer, match=r"tokenizer\.json"):
        Tokenizer.from_files(data)


@pytest.mark.parametrize("eos", [99_999, -1, "2"])
def test_stop_tokens_outside_the_vocabulary(eos: object) -> None:
    with pytest.raises(BadTokenizer, match="eos_token_id"):
        load(tiny.tokenizer_json(), generation_config=json.dumps({"eos_token_id": eos}).encode())


def test_published_ids(shared: Path) -> None:
    tokenizer = published.tokenizer(shared)
    assert tokenizer.vocabulary_tokens == 248_077
    assert len(tokenizer.control_tokens) == 33
    for case in json.loads((shared / "data/tokenizers/qwen3_5_cases.json").read_text()):
        assert list(tokenizer.encode(case["text"])) == case["ids"]
        assert tokenizer.decode(tuple(case["ids"])) == case["decoded"]


LONG = 4 * SLICE_CHARS + 17


@pytest.mark.contract("ERR-012")
@pytest.mark.parametrize(
    "text",
    ["thinking ", "the end", "the", "in ", "  ", "\n\n", "think", "the the\n\n<|", "e\u0301", "in\U0001f600"],
)
def test_what_is_told_to_exceed_does_and_what_fits_is_not(text: str) -> None:
    text = (text * LONG)[:LONG]
    count = len(TINY.encode_plain(text))
    parts = [text[:5], "", text[5 : SLICE_CHARS + 9], text[SLICE_CHARS + 9 :]]
    for pieces_ in ([text], parts):
        exact = sum(len(TINY.encode_plain(piece)) for piece in pieces_)
        assert TINY.least_tokens(pieces_, exact) <= exact
        few = count // 10
        least = TINY.least_tokens(pieces_, few)
        assert least <= exact
        assert (least > few) == (len(text.encode()) > 2 * few)


@pytest.mark.parametrize(
    ("normalizer", "chars"),
    [
        (None, 4 * 16),  # "</tool_response>" is the longest
        ({"type": "NFC"}, 4 * 16),
        ({"type": "NFD"}, 4 * 16),
        ({"type": "Sequence", "normalizers": []}, None),
        ({"type": "Replace", "pattern": {"String": "a"}, "content": ""}, None),
    ],
)
def test_what_one_token_may_stand_for(normalizer: object, chars: int | None) -> None:
    tokenizer = load(tiny.tokenizer_json(normalizer=normalizer))
    assert tokenizer.longest_token_chars == chars


def test_many_short_texts_are_looked_at_together() -> None:
    texts_ = ["in"] * LONG
    assert TINY.least_tokens(texts_, LONG) <= LONG
    assert LONG // 2 < TINY.least_tokens(texts_, LONG // 2) <= LONG
