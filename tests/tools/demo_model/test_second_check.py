"""The second evaluation's own checker: how replies are taken apart, and what counts as right."""

import json

import pytest

from tools.demo_model import eval_second
from tools.demo_model.eval_second import Case
from tools.demo_model.second_check import Answer, example_of, is_right, take_apart

TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "count": {"type": "integer"}, "names": {"type": "array"}},
            },
        },
    },
)


def call(*arguments: tuple[str, str], name: str = "f") -> str:
    """A call as the template writes it."""
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Hello.", Answer(text="Hello.")),
        (call(("text", "5"), ("count", "5")), Answer(text="", calls=(("f", {"text": "5", "count": 5}),))),
        (call(("names", '["a", "b"]')), Answer(text="", calls=(("f", {"names": ["a", "b"]}),))),
        (call(("count", "many")), Answer(text="", calls=(("f", {"count": "many"}),))),
        (call(("else", "5"), name="g"), Answer(text="", calls=(("g", {"else": "5"}),))),
        (call(("text", "two\nlines")), Answer(text="", calls=(("f", {"text": "two\nlines"}),))),
        (f"Now:\n{call()}\n{call()}", Answer(text="Now:", calls=(("f", {}), ("f", {})))),
    ],
)
def test_replies_are_taken_apart(reply: str, answer: Answer) -> None:
    assert take_apart(reply, TOOLS, thinking=False) == answer
    assert take_apart(f"I think.\n</think>\n\n{reply}", TOOLS, thinking=True) == answer


@pytest.mark.parametrize(
    "reply",
    [
        call()[:-3],
        call() + " And more.",
        call(("text", "a"), ("text", "b")),
        call(("text", "a")).replace("</parameter>", ""),
        call().replace("</function>", ""),
        call().removeprefix("<tool_call>\n"),
        "<tool_call>\nf()\n</tool_call>",
    ],
)
def test_damaged_markup_is_never_right(reply: str) -> None:
    answer = take_apart(reply, TOOLS, thinking=False)
    assert answer.damaged
    assert not is_right(Case(task="", messages=(), accepts=lambda text: True), answer)
    assert not is_right(Case(task="", messages=(), call=("f", {})), answer)


def test_thinking_without_an_end_says_nothing() -> None:
    assert take_apart("I think and think", TOOLS, thinking=True) == Answer(text="")


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (Answer(text="", calls=(("f", {"count": 1}),)), True),
        (Answer(text="", calls=(("f", {"count": True}),)), False),
        (Answer(text="", calls=(("f", {"count": "1"}),)), False),
        (Answer(text="", calls=(("f", {"count": 1, "text": ""}),)), False),
        (Answer(text="", calls=(("f", {}),)), False),
        (Answer(text="", calls=(("g", {"count": 1}),)), False),
        (Answer(text="", calls=(("f", {"count": 1}),) * 2), False),
        (Answer(text="count is 1"), False),
    ],
)
def test_a_call_is_right_when_it_is_the_only_one_and_the_same(answer: Answer, right: bool) -> None:
    assert is_right(Case(task="", messages=(), call=("f", {"count": 1})), answer) is right


@pytest.mark.parametrize("task", eval_second.GENERATORS)
def test_what_a_case_wants_is_right(task: str) -> None:
    """The wanted answer, written as a model would, passes; the prompt does not hold an answer."""
    for case in eval_second.cases(task, 20, 7):
        assert example_of(case, thinking=True).messages[-1]["content"] == ""
        if case.call is None:
            assert not is_right(case, Answer(text="", calls=(("f", {}),)))
            assert not is_right(case, Answer(text=""))
        else:
            name, arguments = case.call
            values = [(k, v if isinstance(v, str) else json.dumps(v)) for k, v in arguments.items()]
            assert is_right(case, take_apart(call(*values, name=name), case.tools, thinking=False))
