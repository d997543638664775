"""The directive language: what is found in a text, and what the engine says after given turns."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.engine.directives import GREETING, THOUGHT, Directive, RenderedTurn, Script, find_directives, write_script

CLOSED = "<think>\n\n</think>\n\n"
OPEN = "<think>\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nothing", []),
        ("[[say:yes]]", [Directive("say", "yes", None)]),
        ("[[say yes]]", [Directive("say", None, None)]),
        ('[[say {"a": [1, {"b": "]]"}]}]]', [Directive("say", None, {"a": [1, {"b": "]]"}]})]),
        (
            'x [[call:ls {"path": "."}]] and [[call:pwd]] y',
            [Directive("call", "ls", {"path": "."}), Directive("call", "pwd", None)],
        ),
        ('"text": "[[call:f {\\"a\\": 1}]]"', [Directive("call", "f", {"a": 1})]),  # inside a JSON string
        ("[[call:f {broken]] [[think]]", [Directive("think", None, None)]),
        ('[[say {"a":' + "[" * 100_000 + "[[think]]", [Directive("think", None, None)]),  # deeper than Python reads
        ("[[ -f x ]] [[wiki]] [[Say:x]] [[raw", []),
        ("[[slow:20]][[err:500:code]]", [Directive("slow", "20", None), Directive("err", "500:code", None)]),
    ],
)
def test_directives_in_a_text(text: str, found: list[Directive]) -> None:
    assert [part for part in find_directives(text) if part.kind != "raw"] == found


def say(user: str, *, opening: str = CLOSED, after: tuple[RenderedTurn, ...] = ()) -> Script:
    return write_script([RenderedTurn("user", user), *after, RenderedTurn("assistant", opening)])


def call(name: str, *parameters: tuple[str, str]) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


CALLED = RenderedTurn("assistant", f"{CLOSED}{call('a')}")


def result(*texts: str) -> RenderedTurn:
    return RenderedTurn("user", "".join(f"\n<tool_response>\n{text}\n</tool_response>" for text in texts))


@pytest.mark.contract("D37")
@pytest.mark.parametrize(
    ("user", "script"),
    [
        ("hello", Script(text=GREETING)),
        ("[[say:yes]]", Script(text="yes")),
        ('[[say {"a": "ä"}]]', Script(text='{"a":"ä"}')),
        ("[[say:a]] [[say:b]]", Script(text="b")),
        ("[[say:a]][[pad:2]]", Script(text="a lorem lorem")),
        ("[[trunc]][[say:a]]", Script(text="a", truncated=True)),
        ("[[slow:1500]][[pace:20]][[say:a]]", Script(text="a", first_s=1.5, each_s=0.02)),
        ("[[err:503:overloaded]][[say:a]]", Script(text="a", fault="check")),
        ("[[err]][[say:a]]", Script(text="a", fault="check")),
        ("[[err:oom]][[say:a]]", Script(text="a", fault="oom")),
        ("[[err:crash]][[say:a]]", Script(text="a", fault="crash")),
        ("[[err:device]][[say:a]]", Script(text="a", fault="device")),
        ("[[miderr]][[say:a]]", Script(text="a", faulty_token=3)),
        ("[[drop]][[say:a]]", Script(text="a", faulty_token=3)),
        ("[[ka]][[ping]][[say:a]]", Script(text="a")),
        ("[[call:f]]", Script(text=call("f"))),
        (
            '[[call:f {"s": "two\\nlines", "n": 1.5, "l": [true, null]}]]',
            Script(text=call("f", ("s", "two\nlines"), ("n", "1.5"), ("l", "[true,null]"))),
        ),
        ("[[call:f]] [[call:g]] [[then:h]]", Script(text=f"{call('f')}\n{call('g')}")),
        ("[[then:h]]", Script(text=call("h"))),
        ("[[raw:PHRoaW5rPm9l]]", Script(text="<think>oe", exact=True)),
        ("[[raw:%%%]]", Script(text="[[raw]] holds no base64 of UTF-8 text: Only base64 data is allowed.")),
        ("[[call]]", Script(text="[[call]] needs the name of a tool.")),
        ("[[slow:x]]", Script(text="[[slow]] needs a number.")),
        ("[[pad:-1]]", Script(text="[[pad:-1]] is out of range.")),
    ],
)
def test_what_is_said(user: str, script: Script) -> None:
    assert say(user) == script


@pytest.mark.parametrize(
    ("opening", "user", "text"),
    [
        (CLOSED, "[[say:a]]", "a"),
        (CLOSED, "[[think]][[say:a]]", "a"),
        (OPEN, "[[say:a]]", "</think>\n\na"),
        (OPEN, "[[think]][[say:a]]", f"{THOUGHT}\n</think>\n\na"),
        (OPEN, "[[think]][[call:f]]", f"{THOUGHT}\n</think>\n\n{call('f')}"),
        (OPEN, "[[slow]]", "</think>\n\n[[slow]] needs a number."),
        (OPEN, "[[raw:YQ==]]", "a"),
        ("", "[[say:a]]", "a"),
        ("", "[[think]][[say:a]]", f"<think>\n{THOUGHT}\n</think>\n\na"),
    ],
)
def test_reasoning_follows_what_the_template_has_begun(opening: str, user: str, text: str) -> None:
    assert say(user, opening=opening).text == text


@pytest.mark.parametrize(
    ("after", "text"),
    [
        ((), call("a")),
        ((CALLED, result("one")), call("b")),
        ((CALLED, result("one"), CALLED, result("two", "three")), "Tool said: three"),
        ((CALLED, result("x" * 500), CALLED, result("y" * 500)), f"Tool said: {'y' * 120}"),
        ((CALLED, result("one"), RenderedTurn("user", "and now?")), call("b")),
        ((CALLED, result("one"), RenderedTurn("user", "[[say:done]]")), "done"),
    ],
)
def test_a_tool_loop_goes_on_where_the_history_is(after: tuple[RenderedTurn, ...], text: str) -> None:
    assert say("[[call:a]] [[then:b]]", after=after).text == text


def test_results_without_directives_are_repeated() -> None:
    assert say("what is there?", after=(CALLED, result("a file"))).text == "Tool said: a file"
    assert write_script([]).text == GREETING


@given(text=st.text())
def test_raw_is_exactly_what_was_encoded(text: str) -> None:
    script = say(f"[[raw:{base64.b64encode(text.encode()).decode()}]]")
    assert script == Script(text=text, exact=True) if text else script.text in ("", GREETING)


@given(text=st.text(alphabet='[]{}:"\\ saycltrwenr1-'))
def test_no_text_breaks_the_reader(text: str) -> None:
    assert isinstance(say(text), Script)
