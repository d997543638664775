"""The generators of ordinary talk and requests: answers can be found in what was said, and nothing is left open."""

import random
import re

import pytest

from tests.tools.demo_model.conftest import invented_lists
from tools.demo_model import heldout, third_check
from tools.demo_model.checks import verdict
from tools.demo_model.generate import chat, errand_tools, errands, followups, jsons, knowledge, memory, persona, spin
from tools.demo_model.generate.lifelike import in_words, otherwise
from tools.demo_model.generate.mixture import MIXTURE, draw
from tools.demo_model.render import calls_text
from tools.demo_model.words import Words

TALK = (chat.chat, chat.odd_question, chat.statement, memory.recall, memory.said_before, persona.persona)
OTHERS = (knowledge.knowledge, followups.follow_up, jsons.jsons, errands.no_tools)
REQUESTS = (errands.call_errand, errands.several_errands, errands.refuse_errand, errands.ask_back)


def leaves(value: object) -> list[str]:
    """The texts in a value; numbers may be spoken in words."""
    if isinstance(value, dict | list):
        return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in leaves(item)]
    return [value] if isinstance(value, str) else []


def test_a_choice_is_made_and_slots_stay() -> None:
    seen = {spin.spin(random.Random(seed), "[a|b[c|]] {slot}") for seed in range(40)}
    assert seen == {"a {slot}", "bc {slot}", "b {slot}"}


@pytest.mark.parametrize("pattern", ["[a|b", "a]", "[a[b]"])
def test_brackets_that_do_not_match_are_an_error(pattern: str) -> None:
    with pytest.raises(ValueError, match="bracket"):
        spin.parsed(pattern)


@pytest.mark.parametrize("maker", [*TALK, *OTHERS, *REQUESTS], ids=lambda maker: maker.__name__)
def test_no_mark_of_a_form_is_left_in_what_is_said(maker: object, words: Words) -> None:
    for _ in range(150):
        example = maker(words)  # type: ignore[operator]
        for message in example.messages:
            if maker is jsons.jsons or message["content"].startswith("#include"):
                continue  # JSON and C have braces of their own
            assert not re.search(r"\{[a-zA-Z_]\w*\}|\|", message["content"]), message["content"]


def test_every_pattern_fills_declared_parameters_alone() -> None:
    for row in errand_tools.rows():
        declared = {field.names[0] for field in row.fields}
        for _, pattern, meant in row.patterns:
            assert {*re.findall(r"\{(\w+)\}", pattern), *meant} <= declared, (row.names[0], pattern)
    names = [row.names[0] for row in errand_tools.rows()]
    assert len(names) == len(set(names))
    assert set(errand_tools.addons()) <= set(names)
    assert set().union(*errand_tools.CONFUSABLE) <= set(names)


def test_a_request_holds_the_texts_of_its_call(words: Words) -> None:
    options = {value for row in errand_tools.rows() for field in row.fields for value in field.kind[1:].split("/")}
    for _ in range(400):
        example = errands.call_errand(words)
        said = example.messages[-2]["content"]
        arguments = example.check["arguments"]
        (declared,) = (tool for tool in example.tools or () if tool["function"]["name"] == example.check["name"])
        parameters = declared["function"]["parameters"]
        assert set(arguments) <= set(parameters["properties"])
        # Values of a list are spoken otherwise too: dollars for USD, "turn it off" for false.
        assert [text for text in leaves(arguments) if text.lower() not in said.lower() and text not in options] == []


def test_no_other_declared_tool_fits_a_request(words: Words) -> None:
    rows = {row.names[0]: row for row in errand_tools.rows()}
    for _ in range(200):
        row = words.rng.choice(list(rows.values()))
        made = errand_tools.made_of(words, row)[0]
        others = [one for one in errands.box_for(words, [made], row.domain) if one is not made]
        for other in others:
            name = errand_tools.first_name(other)
            assert name not in rows or not errand_tools.confused(name, row.names[0])


def test_calls_of_one_message_are_judged_together_and_in_order(words: Words) -> None:
    for _ in range(50):
        example = errands.several_errands(words)
        answer = calls_text(example.messages[-1])
        assert verdict(example.check, answer, example.tools)
        assert not verdict({**example.check, "calls": example.check["calls"][:-1]}, answer, example.tools)


def test_what_is_asked_for_was_told(words: Words) -> None:
    for _ in range(200):
        example = memory.recall(words)
        answer = example.check["answer"]
        if answer == memory.UNKNOWN:
            continue
        told = " ".join(message["content"] for message in example.messages[:-2] if message["role"] == "user").lower()
        for name in re.findall(r"\b[A-Z][a-z]+\b", answer):
            known = ("your", "you", "the", "it", "in", "they")
            assert name.lower() in known or name.lower() in told.replace("colour", "color"), (name, example.messages)


def test_a_correction_changes_the_answer() -> None:
    example = memory.FACTS[0]
    words = Words(invented_lists(), random.Random(3), "train")
    ask, answer = example.asked[0]
    old = memory._told(words, example, ask, answer)
    new = memory._corrected(words, example, ask, answer, old)
    assert new[1] == old[1]
    assert new[2] != old[2]
    assert memory._value_of(answer, new[2]) in new[0]


@pytest.mark.parametrize(
    ("number", "said"), [(1, "one"), (15, "fifteen"), (40, "forty"), (99, "ninety-nine"), (0, "0")]
)
def test_numbers_are_said_in_words(number: int, said: str) -> None:
    assert in_words(number) == said


def test_measures_keep_their_value(words: Words) -> None:
    seen = {otherwise(words, "30 minutes, 20 dollars, 5 percent") for _ in range(60)}
    assert {"30 minutes, 20 dollars, 5 percent", "half an hour, $20, 5%"} <= seen


def test_nothing_is_trained_that_the_third_set_says(words: Words) -> None:
    """No conversation shares five words in a row with what the third set's users and system messages say."""
    assert heldout.held_runs()
    for case in third_check.CASES:
        for message in case.messages:
            if message["role"] == "user" and len(heldout.WORD.findall(str(message["content"]).lower())) >= heldout.RUN:
                assert heldout.shows_held([dict(message)])
    assert not any(heldout.shows_held(draw(words).messages) for _ in range(400))
    assert len(MIXTURE) > 40


def test_the_third_set_is_counted_and_not_shown() -> None:
    line = third_check.report([""] * len(third_check.CASES), thinking=False)
    assert line == "third set, not thinking: sensible 0 of 100, right calls 0 of 50"
