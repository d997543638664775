"""The mutator itself: repeatable, and neither too gentle nor too rough."""

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.mutate import mutate_bytes, mutate_structure
from tests.fuzz.wire import Members, Raw, from_python, render

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hello, how are you?"}, {"role": "assistant", "content": None}],
    "temperature": 0.5,
    "stop": ["a", "b"],
    "stream": True,
}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(values)
def test_what_is_not_spoiled_reads_back(value: Any) -> None:
    assert json.loads(render(from_python(value))) == value


def test_what_json_cannot_say_goes_out_all_the_same() -> None:
    assert render(Members(["a", "a", "b"], [1, Raw("NaN"), [Raw('"\\ud800"')]])) == b'{"a":1,"a":NaN,"b":["\\ud800"]}'


@given(st.integers(0, 2**32))
def test_one_seed_one_body(seed: int) -> None:
    assert mutate_structure(BODY, random.Random(seed), ["w"]) == mutate_structure(BODY, random.Random(seed), ["w"])
    assert mutate_bytes(b"abcdef", random.Random(seed)) == mutate_bytes(b"abcdef", random.Random(seed))


def test_the_body_that_was_given_stays_whole() -> None:
    before = json.dumps(BODY)
    for seed in range(300):
        mutate_structure(BODY, random.Random(seed))
    assert json.dumps(BODY) == before


def test_most_spoiled_bodies_are_still_json_and_hardly_any_is_unchanged() -> None:
    random_ = random.Random(5)
    spoiled = [mutate_structure(BODY, random_, ["tool"]) for _ in range(1000)]
    assert sum(readable(body) for body in spoiled) > 600
    assert sum(body == render(from_python(BODY)) for body in spoiled) < 100
    assert len(set(spoiled)) > 700


def readable(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True
