"""What a Messages body becomes beyond its history: limits, sampler, thinking, tools, cache marks, counts."""

import itertools
from typing import Any

import pytest

from ninfer.conversation import CachePoint, SamplingFields, Text, ThinkingFields
from ninfer.protocols.anthropic_messages.decode import decode, decode_count
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
    tool,
    use,
    user,
)

contract = pytest.mark.contract


@contract("ANTH-011", "ANTH-012")
def test_limits_and_sampler() -> None:
    asked = request(body(max_tokens=5, temperature=0.5, top_p=1, top_k=3, stop_sequences=["a", "b"]))
    assert asked.max_output_tokens == 5
    assert asked.sampling == SamplingFields(temperature=0.5, top_p=1.0, top_k=3)
    assert asked.stop == ("a", "b")
    assert request(body()).max_output_tokens is None
    assert request(body()).sampling == SamplingFields()


def test_how_it_is_answered() -> None:
    assert not decode(body()).stream
    assert decode(body(stream=True)).stream


# Thinking


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param({}, ThinkingFields(), id="nothing"),
        pytest.param({"thinking": {"type": "disabled"}}, ThinkingFields(enabled=False), marks=contract("ANTH-017")),
        pytest.param({"thinking": {"type": "adaptive"}}, ThinkingFields(enabled=True), marks=contract("ANTH-017")),
        pytest.param(
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
            ThinkingFields(enabled=True, budget_tokens=1024),
            marks=contract("ANTH-017", "ANTH-018"),
        ),
        pytest.param(
            {"max_tokens": 100, "thinking": {"type": "enabled", "budget_tokens": 32000}},
            ThinkingFields(enabled=True, budget_tokens=32000),
            id="a budget above the limit",
            marks=contract("ANTH-018"),
        ),
        pytest.param(
            {"thinking": {"type": "disabled", "budget_tokens": 0}}, ThinkingFields(enabled=False), id="a budget of none"
        ),
        pytest.param({"preserve_thinking": True}, ThinkingFields(preserve=True), marks=contract("ANTH-025")),
        pytest.param(
            {"output_config": {"effort": "max"}}, ThinkingFields(effort="max"), id="effort", marks=contract("ANTH-026")
        ),
        pytest.param(
            {"output_config": {"effort": "low"}, "thinking": {"type": "disabled"}},
            ThinkingFields(enabled=False, effort="low"),
            id="an effort is about the whole answer",
            marks=contract("ANTH-026"),
        ),
        pytest.param(
            {"chat_template_kwargs": {"enable_thinking": True, "preserve_thinking": False}},
            ThinkingFields(enabled=True, preserve=False),
            id="by the template's names",
            marks=contract("TMPL-013"),
        ),
        pytest.param(
            {"thinking": {"type": "adaptive"}, "chat_template_kwargs": {"enable_thinking": True}},
            ThinkingFields(enabled=True),
            id="twice and agreed",
            marks=contract("TMPL-014"),
        ),
    ],
)
def test_thinking(members: dict[str, object], expected: ThinkingFields) -> None:
    assert request(body(**members)).thinking == expected


@contract("TMPL-014", "ERR-016")
def test_contradictions() -> None:
    off = {"thinking": {"type": "disabled"}, "chat_template_kwargs": {"enable_thinking": True}}
    assert refusal(body(**off)) == ("conflicting_template_option", "thinking.type")
    low = {"output_config": {"effort": "low"}, "chat_template_kwargs": {"reasoning_effort": "high"}}
    assert refusal(body(**low)) == ("conflicting_template_option", "output_config.effort")
    kept = {"preserve_thinking": True, "chat_template_kwargs": {"preserve_thinking": False}}
    assert refusal(body(**kept)) == ("conflicting_template_option", "preserve_thinking")
    assert refusal(body(**off, preserve_thinking=True)) == ("conflicting_template_option", "thinking.type")


@contract("TMPL-013", "TMPL-015")
def test_further_variables_reach_the_template() -> None:
    assert request(body(chat_template_kwargs={"zeta": None, "alpha": {"b": 1, "a": 2}})).template_kwargs == {
        "zeta": None,
        "alpha": {"b": 1, "a": 2},
    }


@contract("ANTH-021", "D25")
@pytest.mark.parametrize(
    ("display", "shown"),
    [("omitted", False), ("summarized", True), ("updates", True), ("something new", True), (None, True)],
)
def test_display(display: str | None, shown: bool) -> None:
    assert decode(body(thinking={"type": "adaptive", "display": display})).show_thinking is shown
    assert decode(body()).show_thinking


# Tools


@contract("TMPL-005")
def test_a_tool_is_declared_as_it_was_received() -> None:
    schema = {"type": "object", "required": ["z"], "properties": {"z": {"type": "string"}, "a": {}}}
    (found,) = request(
        body(tools=[{"input_schema": schema, "name": "f", "input_examples": [{"z": "1"}], "description": "Does."}])
    ).tools
    assert found.name == "f"
    assert found.parameters == schema
    assert not found.free_form
    assert str(found.declaration) == str(
        {
            "type": "function",
            "function": {"parameters": schema, "name": "f", "input_examples": [{"z": "1"}], "description": "Does."},
        }
    )


@pytest.mark.parametrize(
    ("choice", "allowed"),
    [(None, True), ({"type": "auto"}, True), ({"type": "auto", "disable_parallel_tool_use": False}, True),
     ({"type": "none"}, False)],
)  # fmt: skip
def test_tool_choice(choice: object, allowed: bool) -> None:
    asked = request(body(tools=[tool()], tool_choice=choice))
    assert asked.calls_allowed is allowed
    assert len(asked.tools) == 1


REFERENCE = {"type": "tool_reference", "tool_name": "late"}


@contract("D24")
def test_a_deferred_tool_waits_for_its_reference() -> None:
    tools = [tool("now"), tool("late", defer_loading=True), tool("never", defer_loading=True)]
    assert [one.name for one in request(body(tools=tools)).tools] == ["now"]
    history = (USER, assistant(use("s", "search")), user(result("s", [REFERENCE])))
    asked = request(said(*history, tools=tools))
    assert [one.name for one in asked.tools] == ["now", "late"]
    assert "late" in asked.turns[-1].text


@contract("D24")
def test_a_reference_elsewhere_loads_nothing() -> None:
    wire = said(user(REFERENCE), tools=[tool("late", defer_loading=True)])
    assert refusal(wire) == ("invalid_value", "messages[0].content[0].type")


# Cache marks


def points(wire: Any) -> list[str]:
    """The texts and calls of a request that a mark stands behind, tools before all."""
    asked = request(wire)
    found = [one.name for one in asked.tools if one.cache_point]
    for turn in asked.turns:
        for before, part in itertools.pairwise((Text(turn.role), *turn.parts)):
            if isinstance(part, CachePoint):
                found.append(before.text if isinstance(before, Text) else getattr(before, "id", "?"))
    return found


@contract("ANTH-034", "ANTH-035")
def test_marks_stay_where_they_are() -> None:
    wire = said(
        user(text("u1"), text("u2", **MARK)),
        assistant(thinking("hm"), text("a"), use("c", **MARK)),
        user(result("c", "r", **MARK)),
        system=[text("s", **MARK)],
        tools=[tool("t")],
    )
    assert points(wire) == ["s", "u2", "c", "r"]
    assert points(body(tools=[tool("t", **MARK)], system=[text("s", **MARK)])) == ["t", "s"]
    inner = [text("one", **MARK), text("two")]
    assert points(said(user(result("c", inner)))) == ["one"]
    assert points(said(USER, {"role": "system", "content": [text("s", **MARK)]}, USER)) == ["s"]


def test_marks_never_change_the_prompt() -> None:
    marked = said(user(text("a", **MARK), text("b")), cache_control={"type": "ephemeral"}, tools=[tool(**MARK)])
    plain = said(user(text("a"), text("b")), tools=[tool()])
    assert [turn.text for turn in request(marked).turns] == [turn.text for turn in request(plain).turns]
    assert [one.declaration for one in request(marked).tools] == [one.declaration for one in request(plain).tools]


FOUR = [text(str(at), **MARK) for at in range(4)]


@contract("ANTH-035", "D9")
@pytest.mark.parametrize(
    ("wire", "param"),
    [
        pytest.param(said(user(*FOUR, text("x", **MARK))), "messages[0].content[4].cache_control", id="a fifth text"),
        pytest.param(said(user(text("x", **MARK)), system=FOUR), "messages[0].content[0].cache_control", id="system"),
        pytest.param(
            said(
                USER, assistant(*(use(str(at)) for at in range(5))), user(*(result(str(at), **MARK) for at in range(5)))
            ),
            "messages[2].content[4].cache_control",
            id="ANT-13",
        ),
        pytest.param(
            body(tools=[tool(f"t{at}", **MARK) for at in range(5)]), "tools[4].cache_control", id="a fifth tool"
        ),
    ],
)
def test_a_fifth_mark_is_refused(wire: Any, param: str) -> None:
    assert refusal(wire) == ("invalid_value", param)


@contract("ANTH-035")
def test_marks_of_one_place_are_one() -> None:
    assert len(points(said(user(*FOUR, text("", **MARK))))) == 4
    inner = [text("r", **MARK)]
    assert points(said(user(*(result(str(at), inner, **MARK) for at in range(4))))) == ["r"] * 4


@contract("ANTH-036", "ANTH-037", "ANTH-038", "D9")
def test_the_mark_of_the_whole_request() -> None:
    whole = {"cache_control": {"type": "ephemeral"}}
    assert points(said(user(text("a"), text("b")), **whole)) == ["b"]
    assert points(said(user(text("a"), text("b", **MARK)), **whole)) == ["b"]
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert refusal(said(user(text("b", **MARK)), **hour)) == ("invalid_value", "cache_control.ttl")
    assert points(said(user(text("b", **hour)), **hour)) == ["b"]
    assert points(said(user(text("a", **MARK), text("b")), **hour)) == ["a", "b"]
    assert points(said(user(*FOUR), **whole)) == ["0", "1", "2", "3"]
    assert refusal(said(user(*FOUR, text("x")), **whole)) == ("invalid_value", "cache_control")


@contract("ANTH-039")
@pytest.mark.parametrize(
    ("control", "path"),
    [
        ({"type": "ephemeral", "ttl": "2h"}, "ttl"),
        ({"type": "ephemeral", "ttl": 300}, "ttl"),
        ({"type": "forever"}, "type"),
        ({}, "type"),
    ],
)
def test_malformed_marks(control: object, path: str) -> None:
    marked = text("x", cache_control=control)
    assert refusal(said(user(marked)))[1] == f"messages[0].content[0].cache_control.{path}"
    assert refusal(body(cache_control=control))[1] == f"cache_control.{path}"
    for ttl in ("5m", "1h"):
        assert request(said(user(text("x", cache_control={"type": "ephemeral", "ttl": ttl, "scope": "global"}))))


# Counts


@contract("ATOK-002", "ATOK-003")
@pytest.mark.parametrize(
    "members",
    [
        {},
        {"max_tokens": 0, "temperature": 9, "top_k": "x", "stop_sequences": [""], "stream": "yes"},
        {"max_tokens": 5, "temperature": 1, "top_p": 0.5, "top_k": 2, "stop_sequences": ["a"], "stream": True},
    ],
)
def test_what_concerns_the_output_does_not_count(members: dict[str, object]) -> None:
    wire = {
        "system": [text("s", **MARK)],
        "tools": [tool()],
        "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
        "output_config": {"effort": "high"},
        "messages": [USER, assistant(use("a")), user(result("a", is_error=True))],
    }
    assert decode_count(body(**wire, **members)) == request(body(**wire))
