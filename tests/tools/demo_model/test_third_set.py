"""The third set: its counts, and its judges on answers that are right and wrong."""

import pytest

from tools.demo_model.second_check import Answer
from tools.demo_model.third_set import REQUESTS, SENTENCES, Request, is_right_call, is_sensible


def test_there_are_as_many_cases_as_the_card_says() -> None:
    assert (len(SENTENCES), len(REQUESTS)) == (100, 50)
    assert len({str(case.messages) for case in (*SENTENCES, *REQUESTS)}) == 150


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda case: str(case.messages[-1]["content"]))
def test_a_right_call_names_declared_parameters_of_a_declared_tool(request_: Request) -> None:
    right = Answer(text="", calls=(request_.call,)) if request_.call else Answer(text="I cannot do that.")
    assert is_right_call(request_, right)
    assert not is_right_call(request_, Answer(text=""))
    if request_.call is None:
        return
    name, arguments = request_.call
    (function,) = (tool["function"] for tool in request_.tools if tool["function"]["name"] == name)
    assert set(function["parameters"]["required"]) <= set(arguments) <= set(function["parameters"]["properties"])
    assert not is_right_call(request_, Answer(text="", calls=((name, {**arguments, "city": "Rome", "id": 3}),)))


@pytest.mark.parametrize(
    ("said", "sensible"),
    [
        ("Well done! How do you feel?", True),
        ("That is great.", True),
        ("", False),
        ("I have read it.", False),
        ("I have no tool for that, great.", False),
        ("The capital of France is Paris.", False),
        ("great " * 81, False),
    ],
)
def test_news_want_a_word_that_fits(said: str, sensible: bool) -> None:
    assert is_sensible(SENTENCES[0], Answer(text=said.strip())) is sensible


def test_damaged_markup_is_never_right() -> None:
    assert not is_sensible(SENTENCES[0], Answer(text="great", damaged=True))
    assert not is_right_call(REQUESTS[0], Answer(text="", calls=(("get_forecast", {"city": "Bergen"}),), damaged=True))


@pytest.mark.parametrize(("given", "right"), [("the Bergen.", True), ("bergen", True), ("Berg", False), (3, False)])
def test_texts_are_compared_without_case_article_and_closing_marks(given: object, right: bool) -> None:
    answer = Answer(text="", calls=(("get_forecast", {"city": given}),))
    assert is_right_call(REQUESTS[0], answer) is right
