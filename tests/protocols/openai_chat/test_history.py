"""Histories of Chat: roles, calls and results in every form, cache marks."""

from typing import Any

import pytest

from ninfer.conversation import CachePoint, Part, Reasoning, RequestError, Text, ToolCall, Turn
from ninfer.protocols.openai_chat.decode import decode
from tests.protocols.names import CountedName, counted_names

contract = pytest.mark.contract


def user(content: Any = "Hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def turns(*messages: Any, cache_mode: str | None = "explicit") -> tuple[Turn, ...]:
    options = {} if cache_mode is None else {"prompt_cache_options": {"mode": cache_mode}}
    return decode({"model": "m", "messages": [*messages, user("last")], **options}).request.turns[:-1]


def called(name: str = "f", arguments: Any = "{}", id_: str = "call_1") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id_: Any, content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def refusal(*messages: Any) -> tuple[str, str | None]:
    """Code and path of the refusal of `messages`."""
    with pytest.raises(RequestError) as caught:
        turns(*messages)
    assert caught.value.message.startswith(f"{caught.value.param}: ")
    return caught.value.code, caught.value.param


def calls(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [called(id_=one) for one in ids]}


def legacy_result(name: Any) -> dict[str, Any]:
    return {"role": "function", "name": name, "content": "x"}


LEGACY = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}


@contract("CHAT-024")
@pytest.mark.parametrize("order", [("c2", "c1"), ("c2", "c3", "c1"), ("c1", "c2", "c3")])
def test_results_come_in_the_order_of_their_calls(order: tuple[str, ...]) -> None:
    """K5: by position they were swapped without a word."""
    found = turns(user(), calls(*sorted(order)), *(result(one, f"of {one}") for one in order))
    assert [(turn.call_id, turn.text) for turn in found[2:]] == [(one, f"of {one}") for one in sorted(order)]


@contract("CHAT-024", "ERR-005")
@pytest.mark.parametrize(
    ("messages", "param"),
    [
        pytest.param((calls("c1"), result("c9")), "messages[1].tool_call_id", id="unknown"),
        pytest.param((calls("c1"), result("c1"), result("c9")), "messages[2].tool_call_id", id="one too many"),
        pytest.param((calls("c1"), result("c1"), result("c1")), "messages[2].tool_call_id", id="twice"),
        pytest.param((calls("c1", "c2"), result("c2")), "messages[0].tool_calls[0].id", id="missing"),
        pytest.param((calls("c1"),), "messages[0].tool_calls[0].id", id="none at all"),
        pytest.param((calls("c1", "c1"), result("c1")), "messages[0].tool_calls[1].id", id="one id for two calls"),
        pytest.param((calls("c1"), user(), result("c1")), "messages[0].tool_calls[0].id", id="not behind its turn"),
        pytest.param((user(), result("c1")), "messages[1].tool_call_id", id="no call"),
        pytest.param((result("c1"), result("c1")), "messages[1].tool_call_id", id="twice at the beginning"),
        pytest.param((LEGACY,), "messages[0].function_call", id="legacy, missing"),
        pytest.param(
            (LEGACY, {"role": "function", "name": "g", "content": "x"}), "messages[1].name", id="legacy, another"
        ),
        pytest.param((LEGACY, legacy_result("f"), legacy_result("f")), "messages[2].name", id="legacy, twice"),
        pytest.param(
            (user(), {"role": "function", "name": "f", "content": "x"}), "messages[1].name", id="legacy, no call"
        ),
        pytest.param((LEGACY, legacy_result("f"), user(), legacy_result(None)), "messages[3].name", id="legacy, late"),
    ],
)
def test_results_that_fit_no_call(messages: tuple[Any, ...], param: str) -> None:
    assert refusal(*messages) == ("invalid_tool_history", param)


def test_a_result_has_to_name_its_call() -> None:
    for id_ in ({}, {"tool_call_id": None}):
        message = {"role": "tool", "content": "x", **id_}
        assert refusal(calls("c1"), message) == ("missing_required_parameter", "messages[1].tool_call_id")


@contract("CHAT-024")
def test_a_history_that_was_cut_may_begin_with_results() -> None:
    found = turns({"role": "system", "content": "s"}, result("c2", "2"), result("c1", "1"))
    assert [turn.text for turn in found[1:]] == ["2", "1"]


def test_many_results_are_not_compared_each_with_each() -> None:
    ids = counted_names(1000)
    found = turns(calls(*ids), *map(result, reversed(ids)))
    assert [turn.call_id for turn in found[1:]] == ids
    assert CountedName.compared < 20 * len(ids)


@contract("CHAT-005", "CHAT-024")
@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_a_content_is_needed_where_nothing_else_is_said(content: Any) -> None:
    for role in ("system", "developer", "user", "tool"):
        assert refusal({"role": role, **content}) == ("missing_required_parameter", "messages[0].content")
    silent = {"role": "assistant", "tool_calls": [], "refusal": None, **content}
    assert refusal(silent) == ("missing_required_parameter", "messages[0].content")
    for said in (calls("c1"), LEGACY, {"refusal": "No."}, {"reasoning": "hm"}):
        message = {name: value for name, value in said.items() if name != "content"}
        answer = {"role": "function", "name": "f", **content} if said is LEGACY else result("c1")
        expects = (answer,) if said is LEGACY or "tool_calls" in said else ()
        assert turns({**message, "role": "assistant", **content}, *expects)[0].text == said.get("refusal", "")


@contract("CHAT-024")
@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ('{"z": 1, "a": [2]}', {"z": 1, "a": [2]}),
        ({"z": 1, "a": [2]}, {"z": 1, "a": [2]}),
        ("", {}),
        (" ", {}),
        (None, {}),
        ({}, {}),
    ],
)
def test_arguments_in_every_form(given: Any, arguments: Any) -> None:
    """TPL-03 and TPL-04: the object is taken like the string, and an empty string is no arguments."""
    call = {"role": "assistant", "tool_calls": [called("f", given)]}
    (found,) = turns(call, result("call_1"))[0].calls
    assert (found.arguments, list(found.arguments)) == (arguments, list(arguments))
    legacy = {"role": "assistant", "function_call": {"name": "f", "arguments": given}}
    assert turns(legacy, {"role": "function", "name": "f", "content": "x"})[0].calls[0].arguments == arguments


@contract("CHAT-003")
@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_roles(role: str) -> None:
    assert turns({"role": role, "content": "x"})[0] == Turn(role=role, parts=(Text("x"),))  # type: ignore[arg-type]


@contract("CHAT-024", "TMPL-006")
def test_calls_and_results() -> None:
    found = turns(
        user(),
        {
            "role": "assistant",
            "content": "Sure.",
            "reasoning_content": "hm",
            "tool_calls": [called("f", '{"z": 1, "a": {"y": "ö", "b": null}}'), called("g", "", "call_2")],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "2"}], "name": "g"},
    )
    assert found[1] == Turn(
        role="assistant",
        parts=(
            Reasoning("hm"),
            Text("Sure."),
            ToolCall(id="call_1", name="f", arguments={"z": 1, "a": {"y": "ö", "b": None}}),
            ToolCall(id="call_2", name="g", arguments={}),
        ),
    )
    assert list(found[1].calls[0].arguments) == ["z", "a"]
    assert found[2:] == (
        Turn(role="tool", parts=(Text("1"),), call_id="call_1"),
        Turn(role="tool", parts=(Text("2"),), call_id="call_2"),
    )


@contract("CHAT-024", "CHAT-003")
def test_legacy_function_calls() -> None:
    found = turns(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": {"a": 2}}},
        {"role": "function", "name": "f", "content": None},
    )
    assert [(call.name, call.arguments) for turn in found for call in turn.calls] == [("f", {"a": 1}), ("f", {"a": 2})]
    assert [(one.role, one.text) for one in found[1::2]] == [("tool", "1"), ("tool", "")]
    assert [one.call_id for one in found[1::2]] == [turn.calls[0].id for turn in found[::2]]


@contract("CHAT-021", "CHAT-024")
def test_free_form_calls_of_the_history() -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    found = turns({"role": "assistant", "tool_calls": [call]}, result("call_1"))
    assert found[0].parts == (ToolCall(id="call_1", name="patch", arguments={"input": "*** Begin"}),)


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ({"role": "assistant", "content": "a", "tool_calls": []}, (Text("a"),)),
        ({"role": "assistant", "content": "a", "tool_calls": None, "function_call": None}, (Text("a"),)),
        ({"role": "assistant", "content": None, "refusal": "No."}, (Text("No."),)),
        ({"role": "assistant", "content": "a", "refusal": None, "annotations": [], "audio": None}, (Text("a"),)),
        ({"role": "tool", "tool_call_id": "x", "content": "a", "name": "f"}, (Text("a"),)),
    ],
)
def test_what_clients_send_back_of_our_own_answers(message: Any, parts: tuple[Part, ...]) -> None:
    assert turns(message)[0].parts == parts


@contract("CHAT-034")
def test_the_name_on_a_tool_message_means_nothing() -> None:
    message = {"role": "tool", "tool_call_id": "x", "content": "a"}
    assert turns({**message, "name": "f"}) == turns(message)
    with pytest.raises(RequestError) as caught:
        turns({**message, "name": 5})
    assert caught.value.param == "messages[0].name"


@contract("CHAT-035")
@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_a_name_on_any_other_message_is_refused(role: str) -> None:
    assert turns({"role": role, "content": "a", "name": ""})
    with pytest.raises(RequestError) as caught:
        turns({"role": role, "content": "a", "name": "Ann"})
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "messages[0].name")


@contract("ERR-003", "ERR-005")
@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"tool_calls": {}}, "tool_calls"),
        ({"tool_calls": ["f"]}, "tool_calls[0]"),
        ({"tool_calls": [{"type": "function", "function": {"name": "f"}}]}, "tool_calls[0].id"),
        ({"tool_calls": [{**called(), "id": ""}]}, "tool_calls[0].id"),
        ({"tool_calls": [{**called(), "type": "mcp"}]}, "tool_calls[0].type"),
        ({"tool_calls": [{"id": "a", "type": "function"}]}, "tool_calls[0].function"),
        ({"tool_calls": [{"id": "a", "type": "custom"}]}, "tool_calls[0].custom"),
        ({"tool_calls": [called(), called(5)]}, "tool_calls[1].function.name"),  # type: ignore[arg-type]
        ({"tool_calls": [called("")]}, "tool_calls[0].function.name"),
        ({"tool_calls": [called("f", [1])]}, "tool_calls[0].function.arguments"),
        ({"tool_calls": [called("f", "[1]")]}, "tool_calls[0].function.arguments"),
        ({"tool_calls": [called("f", "{")]}, "tool_calls[0].function.arguments"),
        ({"tool_calls": [called("f", '{"a": NaN}')]}, "tool_calls[0].function.arguments"),
        ({"function_call": {"arguments": "{}"}}, "function_call.name"),
        ({"function_call": {"name": "f", "arguments": "x"}}, "function_call.arguments"),
        ({"refusal": 1}, "refusal"),
        ({"audio": {"id": "a"}}, "audio"),
    ],
)
def test_malformed_calls_name_their_place(members: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        turns(user(), {"role": "assistant", **members})
    assert caught.value.param == f"messages[1].{param}"
    assert caught.value.message.startswith(f"messages[1].{param}: ")


def text(said: str, *, mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": said, **({} if mark is None else {"prompt_cache_breakpoint": mark})}


EXPLICIT = {"mode": "explicit"}


@contract("CACHE-HINT-004", "CACHE-HINT-003")
def test_explicit_marks() -> None:
    (found,) = turns(user([text("a", mark=EXPLICIT), text("b")]))
    assert found.parts == (Text("a"), CachePoint(), Text("b"))


@contract("CHAT-032")
@pytest.mark.parametrize("mark", [{"mode": "other"}, {}, "explicit", 5, []])
def test_what_is_no_mark_is_none_and_fails_nothing(mark: Any) -> None:
    assert turns(user([text("a", mark=mark)]))[0].parts == (Text("a"),)


@contract("CACHE-HINT-002", "CACHE-HINT-003")
@pytest.mark.parametrize(
    ("options", "points"),
    [
        ({}, 1),
        ({"prompt_cache_options": None}, 1),
        ({"prompt_cache_options": {}}, 1),
        ({"prompt_cache_options": {"mode": "implicit"}}, 1),
        ({"prompt_cache_options": {"mode": "explicit"}}, 0),
    ],
)
def test_the_automatic_point(options: Any, points: int) -> None:
    request = decode({"model": "m", "messages": [user(), user([text("a"), text("b")])], **options}).request
    assert [part for turn in request.turns for part in turn.parts] == [
        Text("Hi"),
        Text("a"),
        Text("b"),
        *[CachePoint()] * points,
    ]


@contract("CACHE-HINT-007", "CACHE-HINT-008", "D9")
@pytest.mark.parametrize(("marked", "automatic"), [(0, 1), (3, 1), (4, 0), (6, 0)])
def test_four_points_at_most_and_the_latest(marked: int, automatic: int) -> None:
    parts = [text(str(at), mark=EXPLICIT) for at in range(marked)]
    request = decode({"model": "m", "messages": [user([*parts, text("end")])]}).request
    (turn,) = request.turns
    kept = [at for at, part in enumerate(turn.parts) if isinstance(part, CachePoint)]
    assert len(kept) == min(marked, 4) + automatic
    assert [part for part in turn.parts if isinstance(part, Text)] == [Text(str(at)) for at in range(marked)] + [
        Text("end")
    ]
    before = [turn.parts[at - 1] for at in kept]
    assert before == [Text(str(at)) for at in range(marked)][-4:] + [Text("end")] * automatic
