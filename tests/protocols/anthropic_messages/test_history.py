"""Messages as turns: what is joined, what stays where it is, and how calls and results must belong together."""

from typing import Any

import pytest

from ninfer.conversation import CachePoint, Reasoning, Role, Text, ToolCall, Turn
from ninfer.protocols.anthropic_messages.history import BILLING
from ninfer.protocols.anthropic_messages.signatures import hidden_signature
from tests.protocols.anthropic_messages.bodies import (
    MARK,
    USER,
    assistant,
    body,
    refusal,
    request,
    result,
    said,
    text,
    thinking,
    turns,
    use,
    user,
)

contract = pytest.mark.contract
OFF = {"thinking": {"type": "disabled"}}


def spoken(found: tuple[Turn, ...]) -> list[tuple[Role, str]]:
    return [(turn.role, turn.text) for turn in found]


@contract("ANTH-003")
def test_the_whole_conversation_in_its_order() -> None:
    """ANT-01: system messages inside the conversation."""
    found = turns(
        user(text("one")),
        {"role": "system", "content": "note"},
        assistant(thinking("hm"), text("two"), use("t1")),
        user(result("t1", [text("three "), text("four")]), text("five")),
        {"role": "system", "content": [text("last")]},
        system="rules",
    )
    assert spoken(found) == [
        ("system", "rules"),
        ("user", "one"),
        ("system", "note"),
        ("assistant", "two"),
        ("tool", "three four"),
        ("user", "five"),
        ("system", "last"),
    ]
    assert found[3].parts == (
        Reasoning("hm"),
        Text("two"),
        ToolCall(id="t1", name="look", arguments={"q": "t1"}),
    )


@contract("ANTH-002")
def test_consecutive_messages_are_joined_without_separators() -> None:
    found = turns(user(text("a")), {"role": "user", "content": "b"}, assistant(text("c")), assistant(text("d")), USER)
    assert spoken(found) == [("user", "ab"), ("assistant", "cd"), ("user", "Hi")]


@contract("ANTH-002")
def test_results_in_two_messages_are_one_answer() -> None:
    found = turns(USER, assistant(use("a"), use("b")), user(result("a")), user(result("b")))
    assert [turn.call_id for turn in found if turn.role == "tool"] == ["a", "b"]


@contract("ANTH-003")
def test_system_messages_are_never_joined() -> None:
    system = {"role": "system", "content": "x"}
    assert spoken(turns(USER, system, system)) == [("user", "Hi"), ("system", "x"), ("system", "x")]


@contract("D36")
@pytest.mark.parametrize("role", ["user", "system"])
def test_string_and_array_are_the_same(role: str) -> None:
    assert turns(USER, {"role": role, "content": "a b"}) == turns(USER, {"role": role, "content": [text("a b")]})
    marked = turns(USER, {"role": role, "content": [text("a b", **MARK)]})
    assert spoken(marked) == spoken(turns(USER, {"role": role, "content": "a b"}))


@pytest.mark.parametrize("content", ["", [], [text("")]], ids=["string", "array", "text"])
def test_an_empty_message_stays_an_empty_turn(content: object) -> None:
    assert turns({"role": "user", "content": content}) == (Turn(role="user"),)


@pytest.mark.parametrize("system", ["", [], [text("")], None], ids=["string", "array", "text", "null"])
def test_no_system_text_is_no_turn(system: object) -> None:
    assert turns(USER, system=system) == (Turn(role="user", parts=(Text("Hi"),)),)


def test_an_empty_text_beside_others_is_passed_over() -> None:
    """ANT-07."""
    assert turns(user(text(""), text("x"))) == (Turn(role="user", parts=(Text("x"),)),)
    found = turns(USER, assistant(use("a")), user(text(""), result("a"), text("")))
    assert [turn.role for turn in found] == ["user", "assistant", "tool"]


def test_thinking_comes_first_whatever_the_order() -> None:
    """ANT-08."""
    found = turns(USER, assistant(text("hm"), thinking("deep"), use("a")), user(result("a")))
    assert [type(part) for part in found[1].parts] == [Reasoning, Text, ToolCall]


# The billing header of Claude Code


@contract("ANTH-008", "ANTH-010")
def test_the_billing_header_is_gone_before_anything_else() -> None:
    """ANT-02: a nonce at the front would keep every prefix from matching."""
    one, other = (
        body(system=[text(f"{BILLING} cc_version=9.9.9; cch={nonce};", **MARK), text("rules", **MARK)])
        for nonce in ("ab12c", "zz98y")
    )
    assert request(one) == request(other)
    assert request(one).turns[0] == Turn(role="system", parts=(Text("rules"), CachePoint()))


@contract("ANTH-008")
def test_its_mark_takes_no_place() -> None:
    marked = [text(f"{BILLING} x", **MARK), *(text(str(at), **MARK) for at in range(4))]
    assert len([part for part in request(body(system=marked)).turns[0].parts if part == CachePoint()]) == 4


@contract("ANTH-009")
@pytest.mark.parametrize(
    ("members", "kept"),
    [
        pytest.param({"system": f"{BILLING} x"}, f"{BILLING} x", id="string"),
        pytest.param({"system": [text("a"), text(f"{BILLING} x")]}, f"a{BILLING} x", id="a later block"),
        pytest.param({"system": [text(f" {BILLING} x")]}, f" {BILLING} x", id="not at the beginning"),
        pytest.param(
            {"messages": [{"role": "system", "content": [text(f"{BILLING} x")]}, USER]}, f"{BILLING} x", id="inline"
        ),
    ],
)
def test_elsewhere_it_is_text(members: dict[str, Any], kept: str) -> None:
    assert request(body(**members)).turns[0].text == kept


# Thinking in the history


@contract("ANTH-020", "ANTH-023", "ANTH-024")
@pytest.mark.parametrize(
    ("block", "reasoning"),
    [
        pytest.param(thinking("seen", "whatever"), "seen", id="shown"),
        pytest.param({"type": "thinking", "thinking": "seen"}, "seen", id="without a signature"),
        pytest.param(thinking("", hidden_signature("hid\ndén")), "hid\ndén", id="hidden"),
        pytest.param(thinking("seen", hidden_signature("hidden")), "seen", id="the text counts first"),
        pytest.param(thinking("seen", "ninfer-reasoning.v1:%"), "seen", id="then the signature is not even read"),
        pytest.param(thinking("", "EqQBCkYIARgC"), None, id="another's signature"),
        pytest.param(thinking("", ""), None, id="nothing"),
        pytest.param({"type": "redacted_thinking", "data": "EqQB"}, None, id="redacted by another"),
        pytest.param({"type": "redacted_thinking", "data": hidden_signature("x")}, "x", id="redacted by us"),
    ],
)
def test_reasoning_comes_back(block: dict[str, object], reasoning: str | None) -> None:
    found = turns(USER, assistant(block, text("so")), USER)
    assert found[1].reasoning == reasoning
    assert found[1].text == "so"


@contract("ANTH-024", "ERR-027")
@pytest.mark.parametrize("damaged", ["%", "abc", "/w==", "YQ==\n", "YQ=="[:3]])
def test_a_damaged_signature_of_ours_is_refused(damaged: str) -> None:
    wire = said(USER, assistant(thinking("", f"ninfer-reasoning.v1:{damaged}"), text("x")), USER)
    assert refusal(wire) == ("invalid_thinking_signature", "messages[1].content[0].signature")


# Calls and results


@contract("ANTH-033")
def test_results_are_put_in_the_order_of_the_calls() -> None:
    found = turns(USER, assistant(use("a"), use("b")), user(result("b", "B"), result("a", "A"), text("next")))
    assert [(turn.role, turn.call_id, turn.text) for turn in found[2:]] == [
        ("tool", "a", "A"),
        ("tool", "b", "B"),
        ("user", None, "next"),
    ]


@contract("ANTH-033")
@pytest.mark.parametrize("before", [(), ({"role": "system", "content": "s"},)], ids=["first", "after system text"])
def test_a_history_may_begin_with_results(before: tuple[dict[str, object], ...]) -> None:
    found = turns(*before, user(result("b", "B"), result("a", "A"), text("next")))
    assert [(turn.role, turn.call_id) for turn in found[len(before) :]] == [
        ("tool", "b"),
        ("tool", "a"),
        ("user", None),
    ]


def test_a_failed_call_is_marked() -> None:
    found = turns(USER, assistant(use("a"), use("b")), user(result("a", "boom", is_error=True), result("b", None)))
    assert [(turn.text, turn.is_error) for turn in found[2:]] == [("boom", True), ("", False)]


def test_system_text_may_stand_between_calls_and_results() -> None:
    found = turns(USER, assistant(use("a")), {"role": "system", "content": "s"}, user(result("a")))
    assert [turn.role for turn in found] == ["user", "assistant", "system", "tool"]


def test_ids_may_repeat_in_later_turns() -> None:
    found = turns(USER, assistant(use("a")), user(result("a")), assistant(use("a")), user(result("a")))
    assert [turn.call_id for turn in found if turn.role == "tool"] == ["a", "a"]


CALLED = (USER, assistant(use("a"), use("b")))
SYSTEM = {"role": "system", "content": "s"}


@contract("ANTH-032", "ERR-026")
@pytest.mark.parametrize(
    ("messages", "param"),
    [
        pytest.param((*CALLED, user(result("a"))), "messages[2]", id="one is missing"),
        pytest.param((*CALLED, user(text("x"))), "messages[2]", id="all are missing"),
        pytest.param((*CALLED, USER), "messages[2]", id="a string"),
        pytest.param(
            (*CALLED, user(result("a"), result("a"))), "messages[2].content[1].tool_use_id", id="one comes twice"
        ),
        pytest.param(
            (*CALLED, user(result("a"), result("b"), result("c"))),
            "messages[2].content[2].tool_use_id",
            id="one is unknown",
        ),
        pytest.param(
            (*CALLED, user(result("a"), text("x"), result("b"))), "messages[2].content[2]", id="text between them"
        ),
        pytest.param((*CALLED, user(text("x"), result("a"), result("b"))), "messages[2].content[1]", id="ANT-06"),
        pytest.param((*CALLED, SYSTEM, assistant(text("x")), USER), "messages[1].content[0].id", id="no user turn"),
        pytest.param(
            (USER, assistant(text("x")), user(result("a"))), "messages[2].content[0].tool_use_id", id="no call"
        ),
        pytest.param((USER, user(result("a"))), "messages[1].content[0]", id="after the text of its own turn"),
        pytest.param(
            (user(result("a"), result("a")),), "messages[0].content[1].tool_use_id", id="twice at the beginning"
        ),
        pytest.param(
            (USER, assistant(use("a"), use("a")), user(result("a"))),
            "messages[1].content[1].id",
            id="calls share an id",
        ),
        pytest.param((*CALLED, SYSTEM), "messages[1].content[0].id", id="the end after system text"),
        pytest.param(CALLED, "messages[1].content[0].id", id="the end", marks=contract("ANTH-007")),
    ],
)
def test_broken_histories(messages: tuple[dict[str, object], ...], param: str) -> None:
    assert refusal(said(*messages)) == ("invalid_tool_history", param)


# Continuing the assistant's text


@contract("ANTH-004", "ANTH-005", "D8")
def test_a_final_assistant_turn_means_no_thinking() -> None:
    for members in ({}, OFF):
        asked = request(said(USER, assistant(text("{")), **members))
        assert asked.turns[-1] == Turn(role="assistant", parts=(Text("{"),))
        assert asked.thinking.enabled is False
    assert request(said(USER)).thinking.enabled is None


@contract("ANTH-005", "ERR-011")
@pytest.mark.parametrize(
    "members",
    [
        {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        {"thinking": {"type": "adaptive"}},
        {"chat_template_kwargs": {"enable_thinking": True}},
    ],
    ids=["enabled", "adaptive", "by the template's name"],
)
def test_thinking_and_continuing_exclude_each_other(members: dict[str, object]) -> None:
    """ANT-09."""
    assert refusal(said(USER, assistant(text("{")), **members)) == ("invalid_prompt", "messages[1]")


@contract("ANTH-006")
def test_a_cut_turn_keeps_its_reasoning() -> None:
    found = turns(USER, assistant(thinking("hm"), text("So")), **OFF)
    assert found[-1].parts == (Reasoning("hm"), Text("So"))
    assert refusal(said(USER, assistant(thinking("hm")), **OFF)) == ("invalid_prompt", "messages[1]")


@contract("ANTH-004")
@pytest.mark.parametrize("content", ["", [], [text("")]], ids=["string", "array", "text"])
def test_a_turn_without_text_cannot_be_continued(content: object) -> None:
    assert refusal(said(USER, {"role": "assistant", "content": content}, **OFF)) == ("invalid_prompt", "messages[1]")


def test_input_may_stand_in_a_string() -> None:
    """TPL-03: both forms are the same call, and an empty string is no arguments."""
    for input_, arguments in (('{"z": 1, "a": [2]}', {"z": 1, "a": [2]}), ("", {}), ({}, {})):
        found = turns(USER, assistant({**use("a"), "input": input_}), user(result("a")))
        assert found[1].calls[0].arguments == arguments


@contract("ANTH-004")
def test_a_continued_turn_cannot_hold_media() -> None:
    picture = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}
    assert refusal(said(USER, assistant(picture))) == ("vision_disabled", "messages[1].content[0]")
