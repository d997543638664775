"""No word is on both sides of the split, and a seed fixes everything."""

import random

from tests.tools.demo_model.conftest import invented_lists
from tools.demo_model.generate import calls
from tools.demo_model.words import Words, is_eval


def test_each_side_draws_its_own_words(words: Words) -> None:
    for draw in (words.noun, words.invented, lambda: words.draw("verbs"), lambda: words.draw("adjectives")):
        assert {is_eval(draw()) for _ in range(60)} == {words.wants_eval}


def test_evaluation_declares_nothing_that_training_could_have_declared() -> None:
    names: dict[str, set[str]] = {}
    for side in ("train", "eval"):
        words = Words(invented_lists(), random.Random(3), side)
        examples = [calls.call(words) for _ in range(150)]
        names[side] = {example.check["name"] for example in examples}
    assert not names["train"] & names["eval"]


def test_a_seed_fixes_the_conversations() -> None:
    first, second = (Words(invented_lists(), random.Random(9), "train") for _ in range(2))
    assert [calls.loop(first) for _ in range(20)] == [calls.loop(second) for _ in range(20)]
