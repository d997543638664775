"""Histories of Chat: roles, calls and results in every form, cache marks."""

from typing import Any

import pytest

from ninfer.conversation import CachePoint, Part, Reasoning, RequestError, Text, ToolCall, Turn
from ninfer.protocols.openai_chat.decode import decode

contract = pytest.mark.contract


def user(content: Any = "Hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def turns(*messages: Any, cache_mode: str | None = "explicit") -> tuple[Turn, ...]:
    options = {} if cache_mode is None else {"prompt_cache_options": {"mode": cache_mode}}
    return decode({"model": "m", "messages": [*messages, user("last")], **options}).request.turns[:-1]


def called(name: str = "f", arguments: Any = "{}", id_: str = "call_1") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


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
        {"role": "function", "name": "g", "content": "2"},
    )
    (call,) = found[0].calls
    assert (call.name, call.arguments) == ("f", {"a": 1})
    assert [(one.role, one.text) for one in found[1:]] == [("tool", "1"), ("tool", "2")]
    assert found[1].call_id == call.id


@contract("CHAT-021", "CHAT-024")
def test_free_form_calls_of_the_history() -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    found = turns({"role": "assistant", "tool_calls": [call]})
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
        ({"tool_calls": [called("f", {"a": 1})]}, "tool_calls[0].function.arguments"),
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
