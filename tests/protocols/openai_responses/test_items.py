"""Items: the forms that are taken, what is refused at which place, and the turns that they make."""

import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import Reasoning, RequestError, Text, ToolCall, Turn
from ninfer.protocols.openai_responses.history import turns_of
from ninfer.protocols.openai_responses.items import read_item
from tests.protocols.openai_responses.shelf import (
    TOOLS,
    assistant,
    body,
    call,
    new_store,
    output,
    read,
    reasoning,
    stored,
    user,
)

contract = pytest.mark.contract

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
TOKEN = "gAAAAAB" + "oQ9_-Zx0" * 20


def turns(*items: Any, **members: Any) -> list[Turn]:
    """The turns that these Items make, without the automatic cache point."""
    return list(read(body(input=list(items), prompt_cache_options={"mode": "explicit"}, **members)).request.turns)


def parts(item: Any) -> tuple[object, ...]:
    return turns(item)[0].parts


TEXT = {"type": "input_text", "text": "a"}


@pytest.mark.parametrize(
    ("item", "found"),
    [
        pytest.param(user("a"), (Text("a"),), marks=contract("RITEM-002")),
        pytest.param({"role": "user", "content": "a"}, (Text("a"),), id="no type", marks=contract("RITEM-002")),
        pytest.param({"role": "user", "content": [TEXT, TEXT]}, (Text("a"), Text("a")), marks=contract("RITEM-003")),
        pytest.param({"role": "system", "content": [TEXT]}, (Text("a"),), marks=contract("RITEM-002")),
        pytest.param({"role": "developer", "content": "a"}, (Text("a"),), marks=contract("RITEM-002")),
        pytest.param(user(""), (), id="empty"),
        pytest.param(
            assistant([{"type": "output_text", "text": "a", "annotations": []}, {"type": "refusal", "refusal": "No."}]),
            (Text("a"), Text("No.")),
            marks=contract("RITEM-003"),
        ),
        pytest.param(
            assistant("a", status="incomplete", phase="commentary"), (Text("a"),), marks=contract("RITEM-018")
        ),
        pytest.param(assistant("a", status=None, id=None), (Text("a"),), marks=contract("RITEM-018")),
        pytest.param(reasoning("hm"), (Reasoning("hm"),), marks=contract("RITEM-005", "RITEM-010")),
        pytest.param(
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "h"}] * 2},
            (Reasoning("hh"),),
            marks=contract("RITEM-005"),
        ),
        pytest.param(
            reasoning("hm", encrypted_content=TOKEN, summary=[{"type": "summary_text", "text": "s"}]),
            (Reasoning("hm"),),
            id="plain text wins (RSP-05)",
            marks=contract("RITEM-005", "D28"),
        ),
        pytest.param(
            {"type": "reasoning", "summary": [], "encrypted_content": "Let me think."},
            (Reasoning("Let me think."),),
            id="our own mirror",
            marks=contract("D28"),
        ),
        pytest.param(reasoning("hm", encrypted_content=None, status=None), (Reasoning("hm"),), id="nulls"),
    ],
)
def test_forms(item: Any, found: tuple[object, ...]) -> None:
    assert parts(item) == found


@contract("RITEM-006", "TMPL-006")
def test_a_call_and_its_output() -> None:
    made = call("c1", arguments='{"b": 1, "a": {"z": null, "y": [true]}}', id="fc_1", status="completed")
    answered = output("c1", "21 C", id="fco_1", status="completed", name="f")
    found = turns(user("u"), made, answered)
    assert found[1].calls == (ToolCall(id="c1", name="f", arguments={"b": 1, "a": {"z": None, "y": [True]}}),)
    assert list(found[1].calls[0].arguments) == ["b", "a"]
    assert found[2] == Turn(role="tool", parts=(Text("21 C"),), call_id="c1")


def test_an_output_of_parts_is_the_same_as_a_string() -> None:  # RSP-03
    as_parts = turns(user("u"), call("c1"), output("c1", [{"type": "input_text", "text": "ok"}]))
    assert as_parts == turns(user("u"), call("c1"), output("c1", "ok"))
    both = turns(user("u"), call("c1"), output("c1", [TEXT, {"type": "input_text", "text": "b"}]))
    assert both[-1].parts == (Text("a"), Text("b"))


REFUSED: list[tuple[list[Any], str, str]] = [
    # items, param, code
    ([{"content": "a"}], "input[0].type", "missing_required_parameter"),
    ([{"type": "message", "content": "a"}], "input[0].role", "missing_required_parameter"),
    ([{"type": "message", "role": "user"}], "input[0].content", "missing_required_parameter"),
    ([user("a"), {"type": "message", "role": "tool", "content": "a"}], "input[1].role", "invalid_value"),
    ([{"type": "web_search_call", "id": "ws_1"}], "input[0].type", "unsupported_parameter"),
    ([{"type": "custom_tool_call", "input": "x"}], "input[0].type", "unsupported_parameter"),
    ([{"type": "computer_call_output", "output": {}}], "input[0].type", "unsupported_parameter"),
    ([{"type": ["message"]}], "input[0].type", "unsupported_parameter"),
    ([user([{"type": "output_text", "text": "a"}])], "input[0].content[0].type", "invalid_value"),
    ([user([{"type": "refusal", "refusal": "a"}])], "input[0].content[0].type", "invalid_value"),
    ([user([{"type": "text", "text": "a"}])], "input[0].content[0].type", "invalid_value"),
    ([user([TEXT, {"type": "input_text"}])], "input[0].content[1].text", "missing_required_parameter"),
    ([user([{"type": "input_text", "text": 7}])], "input[0].content[0].text", "invalid_type"),
    ([user([{**TEXT, "prompt_cache_breakpoint": {"mode": "x"}}])],
     "input[0].content[0].prompt_cache_breakpoint.mode", "invalid_value"),
    ([assistant([{"type": "refusal"}])], "input[0].content[0].refusal", "missing_required_parameter"),
    ([user([{"type": "input_file", "file_id": "f"}])], "input[0].content[0].type", "unsupported_parameter"),
    ([user([{"type": "input_audio"}])], "input[0].content[0].type", "unsupported_parameter"),
    ([user([IMAGE])], "input[0].content[0]", "vision_disabled"),
    ([user([{**IMAGE, "detail": "high"}])], "input[0].content[0]", "vision_disabled"),
    ([user([{**IMAGE, "detail": "low"}])], "input[0].content[0].detail", "unsupported_parameter"),
    ([user([{"type": "input_image", "file_id": "f"}])], "input[0].content[0].file_id", "unsupported_parameter"),
    ([user([{"type": "input_video", "video_url": "http://v"}])], "input[0].content[0]", "vision_disabled"),
    ([call("c"), output("c", [IMAGE])], "input[1].output[0]", "vision_disabled"),
    ([call("c"), output("c", [])], "input[1].output", "invalid_value"),
    ([call("c"), {"type": "function_call_output", "call_id": "c"}], "input[1].output", "missing_required_parameter"),
    ([call("c"), {"type": "function_call_output", "output": "x"}], "input[1].call_id", "missing_required_parameter"),
    ([{"type": "function_call", "name": "f", "arguments": "{}"}], "input[0].call_id", "missing_required_parameter"),
    ([{"type": "function_call", "call_id": "c", "arguments": "{}"}], "input[0].name", "missing_required_parameter"),
    ([{"type": "function_call", "call_id": "c", "name": "f"}], "input[0].arguments", "missing_required_parameter"),
    ([call("c", status="in_progress")], "input[0].status", "unsupported_parameter"),
    ([call("c"), output("c", status="incomplete")], "input[1].status", "unsupported_parameter"),
    *(
        ([call("c", arguments=text)], "input[0].arguments", "invalid_value")
        for text in ("[]", '"x"', "{", "{'a':1}", '{"a":NaN}', '{"a":1e999}',
                     '{"a":' + "[" * 300 + "]" * 300 + "}", '{"a":' + "[" * 100_000)
    ),
    ([call("c", arguments=[1])], "input[0].arguments", "invalid_type"),
    ([{"type": "reasoning", "summary": []}], "input[0].content", "invalid_reasoning_item"),
    ([{"type": "reasoning", "content": [], "summary": [{"type": "summary_text", "text": "s"}]}],
     "input[0].content", "invalid_reasoning_item"),
    ([{"type": "reasoning", "encrypted_content": TOKEN}], "input[0].encrypted_content", "invalid_reasoning_item"),
    ([{"type": "reasoning", "content": [{"type": "text", "text": "a"}]}], "input[0].content[0].type", "invalid_value"),
    ([reasoning("a", summary=[{"type": "text", "text": "a"}])], "input[0].summary[0].type", "invalid_value"),
]  # fmt: skip
MARKS = {
    "vision_disabled": ["ERR-009"],
    "unsupported_parameter": ["RITEM-019"],
    "invalid_reasoning_item": ["D28", "RITEM-005"],
    "missing_required_parameter": ["ERR-005"],
}


def refused(at: int, items: list[Any], param: str, code: str) -> Any:
    """One row of REFUSED; it is marked by its code."""
    held = MARKS.get(code, [])
    return pytest.param(items, param, code, id=f"{at}-{param}", marks=[contract(*held)] if held else [])


@pytest.mark.parametrize(("items", "param", "code"), [refused(at, *row) for at, row in enumerate(REFUSED)])
def test_refused(items: list[Any], param: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(body(input=items))
    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.message.startswith(param)


@pytest.mark.parametrize("items", [[call("c", arguments="{")], [user([IMAGE])]])
@contract("ERR-005")
def test_messages_name_place_and_value(items: list[Any]) -> None:
    with pytest.raises(RequestError, match=r"^input\[0\]\.(arguments: .*got \"{\"|content\[0\]: .*\"input_image\")"):
        read(body(input=items))


def roles(*items: Any) -> list[str]:
    return [turn.role for turn in turns(*items)]


@contract("RITEM-008", "RITEM-009", "RITEM-011")
def test_assistant_items_are_one_turn() -> None:
    found = turns(
        user("u"),
        reasoning("r1"),
        reasoning("r2"),
        assistant("a"),
        assistant([{"type": "output_text", "text": "b"}, {"type": "refusal", "refusal": "c"}]),
        call("c1"),
        call("c2", name="g", arguments="{}"),
        output("c1", "1"),
        output("c2", "2"),
        assistant("d"),
        {"role": "system", "content": "s"},
    )
    assert [turn.role for turn in found] == ["user", "assistant", "tool", "tool", "assistant", "system"]
    assert found[1].parts == (
        Reasoning("r1"),
        Reasoning("r2"),
        Text("a"),
        Text("b"),
        Text("c"),
        ToolCall(id="c1", name="f", arguments={"a": "b"}),
        ToolCall(id="c2", name="g", arguments={}),
    )


@contract("RITEM-010")
def test_reasoning_alone_is_a_turn() -> None:
    assert [turn.reasoning for turn in turns(user("u"), reasoning("r"), user("v"))] == [None, "r", None]


@pytest.mark.parametrize("item", [reasoning("r"), assistant("a"), call("c")], ids=lambda item: item["type"])
def test_a_long_turn_is_not_read_again_for_each_item(item: dict[str, Any]) -> None:
    def steps(count: int) -> int:
        """Function calls that a turn of so many Items takes to read."""
        made = 0

        def count_call(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        items = [
            read_item("input", {**item, "call_id": f"c{at}"} if "call_id" in item else item) for at in range(count)
        ]
        answers = [read_item("input", output(f"c{at}")) for at in range(count)] if "call_id" in item else []
        sys.setprofile(count_call)
        try:
            (made_turn, *_) = turns_of([*items, *answers], lambda origin: origin[1])
        finally:
            sys.setprofile(None)
        assert len(made_turn.parts) == count
        return made

    assert steps(400) < 3 * steps(200)


@contract("RITEM-015")
def test_system_and_developer_items_stay_where_they_are() -> None:
    assert roles(
        user("u"), {"role": "system", "content": "s"}, assistant("a"), {"role": "developer", "content": "d"}
    ) == [
        "user",
        "system",
        "assistant",
        "developer",
    ]
    given = [user("u", id="1"), assistant("a", id="2"), user("v", id="3")]
    assert [item.id for item in read(body(input=given)).input] == ["1", "2", "3"]


@contract("RITEM-006")
@pytest.mark.parametrize(
    ("given", "arguments", "spelled"),
    [
        ('{"z":1,"a":[2]}', {"z": 1, "a": [2]}, '{"z":1,"a":[2]}'),
        ({"z": 1, "a": [2]}, {"z": 1, "a": [2]}, '{"z":1,"a":[2]}'),
        ("", {}, "{}"),
    ],
)
def test_arguments_in_every_form(given: object, arguments: object, spelled: str) -> None:
    """TPL-03 and TPL-04: the object is taken like the string, and an empty string is no arguments."""
    found = read(body(input=[user("u"), call("c", arguments=given), output("c")]))
    assert found.request.turns[1].calls[0].arguments == arguments
    assert found.input[1].shown["arguments"] == spelled


@pytest.mark.parametrize("content", ["", []])
def test_a_last_message_without_text_cannot_be_continued(content: object) -> None:
    with pytest.raises(RequestError) as caught:
        turns(user("u"), assistant(content))
    assert (caught.value.code, caught.value.param) == ("invalid_prompt", "input[1]")


@contract("RITEM-013")
def test_outputs_come_in_the_order_of_the_calls() -> None:
    found = turns(
        user("u"), call("c1"), call("c2"), call("c3"), output("c3", "3"), output("c1", "1"), output("c2", "2")
    )
    assert [(turn.call_id, turn.text) for turn in found[2:]] == [("c1", "1"), ("c2", "2"), ("c3", "3")]


def test_calls_one_after_the_other_are_turns_of_their_own() -> None:
    assert roles(user("u"), call("c1"), output("c1"), call("c1"), output("c1")) == [
        *("user", "assistant", "tool", "assistant", "tool")
    ]


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([assistant("a"), reasoning("r")], "input[1]"),
        ([assistant(""), reasoning("r")], "input[1]"),
        ([call("c"), assistant("a"), output("c")], "input[1]"),
        ([call("c"), reasoning("r"), output("c")], "input[1]"),
        ([reasoning("r"), assistant("a"), call("c"), call("d"), assistant("b")], "input[4]"),
    ],
)
@contract("RITEM-012", "ERR-025")
def test_assistant_items_out_of_order(items: list[Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(body(input=items))
    assert (caught.value.code, caught.value.param) == ("invalid_assistant_history", param)


@pytest.mark.parametrize(
    ("items", "param"),
    [
        pytest.param([output("c")], "input[0].call_id", id="no call"),
        pytest.param([call("c"), output("d")], "input[1].call_id", id="another's id"),
        pytest.param([call("c"), output("c"), output("c")], "input[2].call_id", id="twice"),
        pytest.param([call("c"), call("d"), output("c")], "input[1].call_id", id="one of two"),
        pytest.param([call("c"), call("d"), output("c"), user("u"), output("d")], "input[1].call_id", id="parted"),
        pytest.param([call("c"), user("u"), output("c")], "input[0].call_id", id="not behind its turn"),
        pytest.param([call("c")], "input[0].call_id", id="none at all"),
        pytest.param([call("c"), call("c"), output("c")], "input[1].call_id", id="one id for two calls"),
        pytest.param([call("c"), output("c", name="g")], "input[1].name", id="another name"),
        pytest.param([call("c"), output("c", namespace="ns")], "input[1].namespace", id="another namespace"),
    ],
)
@contract("RITEM-014", "ERR-026")
def test_outputs_that_fit_no_call(items: list[Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(body(input=items))
    assert (caught.value.code, caught.value.param) == ("invalid_tool_history", param)


@contract("RITEM-014", "RSTORE-003")
def test_a_call_of_the_response_before_needs_its_output() -> None:
    store = new_store()
    store.put(stored("resp_1", input=[user("u")], output=[call("c", id="fc_1", status="completed")]))
    assert read(body(previous_response_id="resp_1", input=[output("c", "1")]), store).request.turns[-1].call_id == "c"
    with pytest.raises(RequestError) as caught:
        read(body(previous_response_id="resp_1", input="and?"), store)
    assert (caught.value.code, caught.value.param) == ("invalid_tool_history", "previous_response_id")


@contract("RITEM-022", "RITEM-023")
def test_a_call_in_a_namespace_has_the_identity_that_its_tool_has() -> None:
    found = read(body(tools=TOOLS, input=[user("u"), call("c", namespace="ns"), output("c", namespace="ns", name="f")]))
    assert [tool.name for tool in found.request.tools] == ["f", "ns__f"]
    assert found.request.turns[1].calls[0].name == "ns__f"
    assert found.input[1].shown["namespace"] == "ns"
    assert found.input[1].shown["name"] == "f"


@contract("RITEM-015", "RITEM-018")
def test_canonical_forms() -> None:
    given = [
        {"role": "user", "content": "a", "phase": "commentary"},
        assistant("b", id="msg_2", status="incomplete"),
        reasoning("r", id="rs_1", encrypted_content="r"),
        call("c", id="fc_1"),
        output("c", [TEXT], id="fco_1"),
    ]
    shown = [dict(read_item(f"input[{at}]", one).shown) for at, one in enumerate(given)]
    assert shown[0].pop("id")
    assert shown == [
        {
            "type": "message",
            "role": "user",
            "status": "completed",
            "phase": "commentary",
            "content": [{"type": "input_text", "text": "a"}],
        },
        {
            "id": "msg_2",
            "type": "message",
            "role": "assistant",
            "status": "incomplete",
            "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}],
        },
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "r"}],
            "status": "completed",
            "encrypted_content": "r",
        },
        {
            "id": "fc_1",
            "type": "function_call",
            "call_id": "c",
            "name": "f",
            "arguments": '{"a":"b"}',
            "status": "completed",
        },
        {"id": "fco_1", "type": "function_call_output", "call_id": "c", "output": [TEXT], "status": "completed"},
    ]


@given(st.lists(st.sampled_from(["user", "reasoning", "message", "call", "outputs"]), max_size=12))
def test_grouping_takes_exactly_the_orders_that_need_no_rearranging(kinds: list[str]) -> None:
    """The rule again, as a regular language over the kinds of Items."""
    items: list[Any] = []
    waiting: list[str] = []
    spelled = ""
    for at, kind in enumerate(kinds):
        if kind == "outputs":
            items += [output(one) for one in reversed(waiting)]
            spelled += "o" if waiting else ""
            waiting = []
        else:
            made = {"user": user("u"), "reasoning": reasoning("r"), "message": assistant("a"), "call": call(f"c{at}")}
            items.append(made[kind])
            waiting += [f"c{at}"] if kind == "call" else []
            spelled += kind[0]
    valid = re.fullmatch(r"(u|r*m*c+o|r*m*(?=u|$)|r+m*(?=u|$))*", spelled) is not None
    read_items = [read_item(f"input[{at}]", one) for at, one in enumerate(items)]
    if valid:
        found = turns_of(read_items, lambda pair: pair[1])
        assert sum(len(turn.parts) for turn in found) == len(items), spelled
        return
    with pytest.raises(RequestError) as caught:
        turns_of(read_items, lambda pair: pair[1])
    assert caught.value.code in ("invalid_assistant_history", "invalid_tool_history")
