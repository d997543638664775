"""The wide generators: answers can be found in their requests, and no sentence of the second generator is theirs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tools.demo_model import eval_second, export
from tools.demo_model.generate import phrases, reading, shapes, wide
from tools.demo_model.words import Words

GENERATE = Path(phrases.__file__).parent
WORD = re.compile(r"[a-z']+|\{")


def leaves(value: object) -> list[str]:
    """The texts in a value; numbers and truth values may be spoken otherwise."""
    if isinstance(value, dict | list):
        return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in leaves(item)]
    return [value] if isinstance(value, str) else []


def runs(text: str, length: int) -> set[tuple[str, ...]]:
    """All runs of `length` words; a value's place, {name}, is one word."""
    words = WORD.findall(re.sub(r"\{\w*\}", "{", text.lower()))
    return {tuple(words[at : at + length]) for at in range(len(words) - length + 1)}


def test_a_call_takes_its_texts_from_the_request(words: Words) -> None:
    for _ in range(200):
        example = wide.call_wide(words)
        request = example.messages[-2]["content"]
        assert [text for text in leaves(example.check["arguments"]) if text not in request] == []
        (declared,) = (tool for tool in example.tools or () if tool["function"]["name"] == example.check["name"])
        assert set(example.check["arguments"]) <= set(declared["function"]["parameters"]["properties"])


def test_what_is_refused_is_not_declared(words: Words) -> None:
    for _ in range(50):
        example = wide.refuse_wide(words)
        assert example.tools
        assert "tool_calls" not in example.messages[-1]


def test_json_takes_its_texts_from_the_report(words: Words) -> None:
    for _ in range(200):
        example = shapes.json_wide(words)
        assert [text for text in leaves(example.check["value"]) if text not in example.messages[-2]["content"]] == []


def test_an_answer_stands_in_the_text(words: Words) -> None:
    for _ in range(200):
        example = reading.read(words)
        told = " ".join(message["content"] for message in example.messages[:-1])
        assert example.check["answer"].lower() in told.lower()


@pytest.mark.parametrize("file", sorted(path.name for path in GENERATE.glob("*.txt")))
def test_no_sentence_of_the_second_generator_is_here(file: str) -> None:
    """Its cases judge what training did not show: no run of five of its words is a run of ours, and no tool's name."""
    asks = [ask for theme in eval_second._THEMES for ask in (*theme.asks, theme.about)]
    asks += ["{o} lives at {a}. Where does {o} live?", "{o} keeps {n} pieces of the article {i} in the shed."]
    theirs = set().union(*(runs(ask, 5) for ask in asks))
    text = (GENERATE / file).read_text(encoding="utf-8")
    assert theirs
    for line in text.splitlines():
        for part in re.split(r" [;|] ", line):
            assert not runs(part, 5) & theirs
    assert not [theme.name for theme in eval_second._THEMES if theme.name in text]


def test_safetensors_are_written_as_others_read_them(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(1, np.float32)}
    export.write_safetensors(arrays, tmp_path / "x.safetensors")
    raw = (tmp_path / "x.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    for name, array in arrays.items():
        first, last = header[name]["data_offsets"]
        assert raw[8 + length + first : 8 + length + last] == array.tobytes()
        assert header[name]["shape"] == list(array.shape)
