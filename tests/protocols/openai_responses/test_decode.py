"""Responses bodies: what is taken over, what is refused, and that an error names its place and its value."""

from collections.abc import Callable
from typing import Any

import pytest

from ninfer.conversation import (
    CachePoint,
    NotFound,
    RequestError,
    SamplingFields,
    Text,
    ThinkingFields,
    Turn,
    Unsupported,
)
from ninfer.protocols.openai_responses.echo import echoed_fields
from tests.protocols.openai_responses.shelf import TOOLS, assistant, body, call, new_store, output, read, stored, user

contract = pytest.mark.contract
FORCED = {"type": "function", "name": "f"}


@contract("RESP-002", "RITEM-001", "RESP-007", "RESP-008")
def test_the_plain_request() -> None:
    call_ = read({"model": "qwen", "input": "Hi", "max_output_tokens": 5})
    assert (call_.wire.model, call_.wire.stream, call_.wire.store) == ("qwen", False, True)
    assert [(turn.role, turn.text) for turn in call_.request.turns] == [("user", "Hi")]
    assert call_.request.max_output_tokens == 5
    assert call_.request.sampling == SamplingFields()
    assert call_.request.thinking == ThinkingFields()
    (item,) = call_.input
    assert item.shown["content"] == [{"type": "input_text", "text": "Hi"}]


@contract("RESP-004", "RITEM-017")
def test_instructions_lead_as_a_developer_turn_and_are_no_item() -> None:
    call_ = read(body(instructions="Be brief.", input=[{"role": "system", "content": "S"}, user("Hi")]))
    assert [(turn.role, turn.text) for turn in call_.request.turns] == [
        ("developer", "Be brief."),
        ("system", "S"),
        ("user", "Hi"),
    ]
    assert len(call_.input) == 2


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("user", lambda text: {"user": text}),
        ("safety_identifier", lambda text: {"safety_identifier": text}),
        ("prompt_cache_key", lambda text: {"prompt_cache_key": text}),
        ("reasoning.summary", lambda text: {"reasoning": {"summary": text}}),
        ("reasoning.generate_summary", lambda text: {"reasoning": {"generate_summary": text}}),
        ("text.verbosity", lambda text: {"text": {"verbosity": text}}),
    ],
)
def test_what_every_event_repeats_is_short(path: str, fields: Callable[[str], dict[str, Any]]) -> None:
    longest = "😀" * 512
    assert longest in str(echoed_fields(read(body(**fields(longest)))))
    for value, code in ((longest + "x", "string_above_max_length"), ({"a": "b"}, "invalid_type")):
        with pytest.raises(RequestError) as caught:
            read(body(**fields(value)))
        assert (caught.value.code, caught.value.param) == (code, path)


ACCEPTED: dict[str, list[Any]] = {
    "max_output_tokens": [0, 7],
    "stream": [True, False],
    "store": [True, False],
    "temperature": [0, 2, 0.5],
    "top_p": [0, 1, 0.5],
    "metadata": [{}, {"k" * 64: "v" * 512}, {str(n): "" for n in range(16)}],
    "client_metadata": [{}, {"any": {"thing": [1]}}],
    "reasoning": [{}, {"effort": "none"}, {"summary": "auto"}, {"summary": "whatever"}, {"context": "auto"}],
    "chat_template_kwargs": [{}, {"enable_thinking": False}, {"x": None}],
    "preserve_thinking": [True, False],
    "text": [{}, {"format": {"type": "text"}}, {"verbosity": "low"}, {"format": None}],
    "tools": [[], TOOLS, [{"type": "function", "name": "f", "strict": False}]],
    "tool_choice": ["auto", "none"],
    "parallel_tool_calls": [True, False],  # false asks for nothing where there are no tools
    "max_tool_calls": [0, 9],
    "truncation": ["disabled"],
    "top_logprobs": [0],
    "service_tier": ["auto", "default"],
    "background": [False],
    "include": [[], ["reasoning.encrypted_content"]],
    "stream_options": [{}, {"include_obfuscation": True}],
    "prompt_cache_key": ["k"],
    "prompt_cache_options": [{"mode": "explicit", "ttl": "30m"}, {"mode": "implicit"}],
    "prompt_cache_retention": ["in_memory", "24h"],
    "safety_identifier": ["s"],
    "user": ["u"],
    "tool_constraints": ["auto", "basic"],
    "context_management": [[]],
    "moderation": [{}],
    "instructions": ["", "x"],
}
MARKS = {
    "max_output_tokens": ["RESP-006"],
    "temperature": ["RESP-009"],
    "top_p": ["RESP-009"],
    "metadata": ["RESP-010"],
    "client_metadata": ["RESP-011"],
    "reasoning": ["RESP-012", "RESP-013"],
    "chat_template_kwargs": ["RESP-014"],
    "preserve_thinking": ["RESP-015"],
    "text": ["D33"],
    "tools": ["RESP-017"],
    "max_tool_calls": ["RESP-020"],
    "truncation": ["RESP-021"],
    "top_logprobs": ["RESP-022"],
    "background": ["RESP-022"],
    "service_tier": ["RESP-023"],
    "include": ["RESP-024"],
    "stream_options": ["RESP-025"],
    "prompt_cache_key": ["RESP-026"],
    "prompt_cache_options": ["RESP-026"],
    "prompt_cache_retention": ["RESP-026"],
    "safety_identifier": ["RESP-026"],
    "user": ["RESP-026"],
    "context_management": ["D10"],
    "moderation": ["D10"],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, marks=[contract(*MARKS[name])] if name in MARKS else [])
        for name, values in ACCEPTED.items()
        for value in [*values, None]
    ],
)
def test_accepted(name: str, value: object) -> None:
    """A plain value is kept as it came, if anything reads it; what becomes of objects and arrays is tested apart."""
    kept = getattr(read(body(**{name: value})).wire, name, value)
    assert kept == value or value is None or isinstance(value, list | dict)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # members, param, code
    ({"model": ""}, "model", "invalid_value"),
    ({"model": None}, "model", "missing_required_parameter"),
    ({"input": None}, "input", "missing_required_parameter"),
    ({"input": ""}, "input", "missing_required_parameter"),
    ({"input": []}, "input", "missing_required_parameter"),  # RSP-04
    ({"input": 7}, "input", "invalid_type"),
    ({"input": ["Hi"]}, "input[0]", "invalid_type"),
    ({"instructions": []}, "instructions", "invalid_type"),
    ({"max_output_tokens": -1}, "max_output_tokens", "invalid_value"),
    ({"max_output_tokens": 1.5}, "max_output_tokens", "invalid_type"),
    ({"stream": "yes"}, "stream", "invalid_type"),
    ({"store": 1}, "store", "invalid_type"),
    ({"temperature": 2.1}, "temperature", "invalid_value"),
    ({"top_p": -0.1}, "top_p", "invalid_value"),
    ({"metadata": {"a": 1}}, "metadata.a", "invalid_type"),
    ({"metadata": {"k" * 65: ""}}, f"metadata.{'k' * 60}...", "invalid_value"),
    ({"metadata": {"k": "v" * 513}}, "metadata.k", "invalid_value"),
    ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "invalid_value"),
    ({"client_metadata": "x"}, "client_metadata", "invalid_type"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "invalid_value"),
    ({"reasoning": {"summary": True}}, "reasoning.summary", "invalid_type"),
    ({"reasoning": {"mode": "pro"}}, "reasoning.mode", "unsupported_parameter"),
    ({"reasoning": {"context": "all_turns"}}, "reasoning.context", "unsupported_parameter"),
    ({"chat_template_kwargs": 1}, "chat_template_kwargs", "invalid_type"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages", "unsupported_parameter"),
    ({"preserve_thinking": 1}, "preserve_thinking", "invalid_type"),
    ({"text": {"format": {"type": "json_object"}}}, "text.format", "unsupported_parameter"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format", "unsupported_parameter"),
    ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs", "unsupported_parameter"),
    ({"tool_constraints": "strict"}, "tool_constraints", "unsupported_parameter"),
    ({"grammar": "root ::= x"}, "grammar", "unsupported_parameter"),
    ({"guided_regex": "x"}, "guided_regex", "unsupported_parameter"),
    ({"tool_choice": "required", "tools": TOOLS}, "tool_choice", "unsupported_parameter"),
    ({"tool_choice": FORCED, "tools": TOOLS}, "tool_choice", "unsupported_parameter"),
    ({"tool_choice": {"type": "web_search"}}, "tool_choice", "unsupported_parameter"),
    ({"tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "tool_choice", "unsupported_parameter"),
    ({"tool_choice": "any"}, "tool_choice", "invalid_value"),
    ({"tool_choice": {}}, "tool_choice", "invalid_value"),
    ({"parallel_tool_calls": False, "tools": TOOLS}, "parallel_tool_calls", "unsupported_parameter"),
    ({"max_tool_calls": -1}, "max_tool_calls", "invalid_value"),
    ({"truncation": "auto"}, "truncation", "unsupported_parameter"),
    ({"truncation": 1}, "truncation", "invalid_type"),
    ({"top_logprobs": 3}, "top_logprobs", "unsupported_parameter"),
    ({"service_tier": "flex"}, "service_tier", "unsupported_parameter"),
    ({"background": True}, "background", "unsupported_parameter"),
    ({"background": 1}, "background", "invalid_type"),
    ({"include": ["file_search_call.results"]}, "include[0]", "unsupported_parameter"),
    ({"include": "all"}, "include", "invalid_type"),
    ({"stream_options": {"include_obfuscation": "no"}}, "stream_options.include_obfuscation", "invalid_type"),
    ({"prompt_cache_options": {"mode": "never"}}, "prompt_cache_options.mode", "invalid_value"),
    ({"prompt_cache_retention": "1y"}, "prompt_cache_retention", "invalid_value"),
    ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
    ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
    ({"context_management": [{"type": "compaction"}]}, "context_management", "unsupported_parameter"),
    ({"moderation": {"model": "x"}}, "moderation", "unsupported_parameter"),
    ({"personality": "friendly"}, "personality", "unsupported_parameter"),
    *(
        ({name: 0}, name, "unknown_parameter")
        for name in ("seed", "stop", "top_k", "min_p", "presence_penalty", "frequency_penalty", "messages", "n")
    ),
]
REFUSAL_MARKS = {
    "unknown_parameter": ["RESP-027", "ERR-024", "D12"],
    "invalid_type": ["ERR-003"],
    "invalid_value": ["ERR-003"],
    "missing_required_parameter": ["ERR-003"],
}
BOUNDED = {
    *("max_output_tokens", "temperature", "top_p", "metadata", "max_tool_calls"),
    *("truncation", "top_logprobs", "background", "service_tier", "include"),
}
"""Fields whose statement says what they may be: it is held by what they may not be, too."""


def bound_of(param: str) -> list[str]:
    """The statement about the field in which `param` lies."""
    name = param.partition(".")[0].partition("[")[0]
    return MARKS[name] if name in BOUNDED else []


@pytest.mark.parametrize(
    ("members", "param", "code"),
    [
        pytest.param(*case, id=f"{case[1]}-{case[2]}", marks=[contract(*held)] if held else [])
        for case in REFUSED
        for held in [[*REFUSAL_MARKS.get(case[2], []), *bound_of(case[1])]]
    ],
)
def test_refused(members: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(body(**members))
    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.message.startswith(param)


@contract("ERR-004", "ERR-005")
def test_a_refusal_names_the_value_escaped_and_cut_and_its_place() -> None:
    with pytest.raises(RequestError) as caught:
        read(body(ünknown="é" * 100))
    escaped = "\\u00e9" * 60
    assert caught.value.message == f'\\u00fcnknown: is no parameter of Responses; got "{escaped}"... (100 characters)'
    with pytest.raises(RequestError) as caught:
        read(body(tools=[{"type": "function", "name": "no spaces"}]))
    assert caught.value.param == "tools[0].name"
    assert 'tools[0].name: expected 1 to 128 letters, digits, _, - or ., got "no spaces"' in caught.value.message


@contract("RESP-012", "TMPL-004")
def test_effort() -> None:
    assert read(body(reasoning={"effort": "none"})).request.thinking == ThinkingFields(enabled=False)
    for effort in ("minimal", "low", "medium", "high", "xhigh", "max"):
        assert read(body(reasoning={"effort": effort})).request.thinking == ThinkingFields(effort=effort)


@contract("RESP-013")
def test_summaries() -> None:
    assert read(body()).summary is None
    assert read(body(reasoning={"summary": "odd"})).summary == "odd"
    assert read(body(reasoning={"generate_summary": "concise"})).summary == "concise"
    assert read(body(reasoning={"summary": "odd"})).request == read(body()).request


@contract("RESP-014", "TMPL-013", "TMPL-015")
def test_template_kwargs() -> None:
    request = read(body(chat_template_kwargs={"enable_thinking": True, "preserve_thinking": None, "x": None})).request
    assert request.thinking == ThinkingFields(enabled=True)
    assert request.template_kwargs == {"x": None}


@pytest.mark.parametrize(
    ("members", "param"),
    [
        pytest.param(
            {"preserve_thinking": True, "chat_template_kwargs": {"preserve_thinking": False}},
            "preserve_thinking",
            marks=contract("RESP-015", "TMPL-014"),
        ),
        pytest.param(
            {"reasoning": {"effort": "none"}, "chat_template_kwargs": {"enable_thinking": True}},
            "reasoning.effort",
            marks=contract("TMPL-017", "ERR-016"),
        ),
        pytest.param(
            {"reasoning": {"effort": "low"}, "chat_template_kwargs": {"reasoning_effort": "high"}},
            "reasoning.effort",
            marks=contract("TMPL-014", "ERR-016"),
        ),
    ],
)
def test_contradictions(members: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(body(**members))
    assert (caught.value.code, caught.value.param) == ("conflicting_template_option", param)


@contract("RESP-015")
def test_preserve_thinking_is_an_alias() -> None:
    for members in ({"preserve_thinking": True}, {"chat_template_kwargs": {"preserve_thinking": True}}):
        assert read(body(**members)).request.thinking == ThinkingFields(preserve=True)


@contract("RESP-005", "RSTORE-017")
def test_an_unknown_previous_response() -> None:
    with pytest.raises(NotFound) as caught:
        read(body(previous_response_id="resp_gone"))
    assert (caught.value.code, caught.value.param) == ("response_not_found", "previous_response_id")


@contract("RSTORE-003", "RSTORE-004", "RESP-003")
def test_a_chain_is_rebuilt() -> None:
    store = new_store()
    first = stored("resp_1", input=[user("one")], output=[call("c1", id="fc_1")])
    store.put(first)
    second = stored("resp_2", input=[output("c1", "21")], output=[assistant("two", id="msg_1")], after=first)
    store.put(second)
    for given in (None, [], ""):
        request = read(body(previous_response_id="resp_2", input=given), store).request
        assert [(turn.role, turn.text) for turn in request.turns] == [
            ("user", "one"),
            ("assistant", ""),
            ("tool", "21"),
            ("assistant", "two"),
        ]
    call_ = read(body(previous_response_id="resp_2", input="three", instructions="New."), store)
    assert [turn.role for turn in call_.request.turns] == [
        "developer",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert len(call_.input) == 1
    assert call_.request.tools == ()


@contract("RSTORE-006")
def test_preserve_thinking_is_inherited() -> None:
    store = new_store()
    store.put(stored("resp_1", input=[user("a")], preserve=True))
    assert read(body(previous_response_id="resp_1"), store).request.thinking.preserve is True
    assert read(body(previous_response_id="resp_1"), store).preserve_thinking is True
    told = read(body(previous_response_id="resp_1", preserve_thinking=False), store)
    assert (told.request.thinking.preserve, told.preserve_thinking) == (False, False)


@contract("RESP-003")
def test_nothing_to_answer() -> None:
    store = new_store()
    store.put(stored("resp_1", input=[{"role": "system", "content": "S"}]))
    with pytest.raises(RequestError) as caught:
        read(body(previous_response_id="resp_1", input=[]), store)
    assert (caught.value.param, caught.value.code) == ("input", "missing_required_parameter")


@contract("D29")
@pytest.mark.parametrize("kind", [{"type": "item_reference"}, {"type": None}, {}, {"role": None, "status": None}])
def test_item_references(kind: dict[str, Any]) -> None:
    """The type may be null or missing (K8)."""
    store = new_store()
    store.put(stored("resp_1", input=[user("one", id="msg_u")], output=[assistant("two", id="msg_a")]))
    given = [{**kind, "id": "msg_u"}, {"id": "msg_a", **kind}, user("three")]
    assert [turn.text for turn in read(body(input=given), store).request.turns] == ["one", "two", "three"]
    with pytest.raises(RequestError) as caught:
        read(body(input=[user("a"), {"type": "item_reference", "id": "msg_x"}]), store)
    assert (caught.value.code, caught.value.param) == ("item_not_found", "input[1].id")
    with pytest.raises(RequestError) as caught:
        read(body(input=[{"type": "item_reference"}]), store)
    assert (caught.value.code, caught.value.param) == ("missing_required_parameter", "input[0].id")


@pytest.mark.parametrize(
    ("item", "param", "code"),
    [
        ({"id": 5}, "input[0].id", "invalid_type"),
        ({"id": "msg_x"}, "input[0].id", "item_not_found"),
        ({"id": "msg_x", "content": "a"}, "input[0].type", "missing_required_parameter"),
        ({}, "input[0].type", "missing_required_parameter"),
        ({"id": None}, "input[0].type", "missing_required_parameter"),
    ],
)
def test_what_refers_to_no_item(item: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(body(input=[item]))
    assert (caught.value.param, caught.value.code) == (param, code)


@contract("RITEM-016")
def test_ids_are_kept_made_and_unique() -> None:
    first, second = read(body(input=[user("a", id="mine"), user("b")])).input
    assert first.id == first.shown["id"] == "mine"
    assert second.id == second.shown["id"]
    assert second.id.startswith("msg_")
    store = new_store()
    store.put(stored("resp_1", input=[user("a", id="mine")]))
    for given, members in (
        ([user("a", id="mine"), user("b", id="mine")], {}),
        ([user("b"), user("c", id="mine")], {"previous_response_id": "resp_1"}),
    ):
        with pytest.raises(RequestError) as caught:
            read(body(input=given, **members), store)
        assert (caught.value.code, caught.value.param) == ("duplicate_item_id", "input[1].id")


def points(given: list[dict[str, Any]], **members: Any) -> list[str]:
    """The texts behind which something is worth keeping."""
    found = []
    for turn in read(body(input=given, **members)).request.turns:
        for before, part in zip(turn.parts, turn.parts[1:], strict=False):
            if isinstance(part, CachePoint):
                assert isinstance(before, Text)
                found.append(before.text)
    return found


def marked(*texts: str) -> dict[str, Any]:
    part = {"type": "input_text", "prompt_cache_breakpoint": {"mode": "explicit"}}
    return {"role": "user", "content": [{**part, "text": text} for text in texts]}


EXPLICIT = {"prompt_cache_options": {"mode": "explicit"}}


@pytest.mark.parametrize(
    ("given", "members", "found"),
    [
        pytest.param([user("a"), user("b")], {}, ["b"], marks=contract("CACHE-HINT-002")),
        pytest.param(
            [user("a"), user("b")],
            {"prompt_cache_options": {"mode": "implicit"}},
            ["b"],
            marks=contract("CACHE-HINT-002"),
        ),
        pytest.param([user("a")], EXPLICIT, [], marks=contract("CACHE-HINT-003")),
        pytest.param([marked("a"), user("b")], {}, ["a", "b"], marks=contract("CACHE-HINT-004")),
        pytest.param([marked("a"), user("b")], EXPLICIT, ["a"], marks=contract("CACHE-HINT-004")),
        pytest.param([user("a"), marked("b")], {}, ["b"], id="one place, asked for twice"),
        pytest.param([marked(*"abcd"), user("e")], {}, [*"abcd"], marks=contract("CACHE-HINT-007", "CACHE-HINT-008")),
        pytest.param([marked(*"ab"), marked(*"cdef")], {}, [*"cdef"], marks=contract("CACHE-HINT-008", "D9")),
        pytest.param([marked(*"abc"), marked(*"de")], {}, [*"bcde"], id="the first of one turn"),
        pytest.param(
            [user("u"), call("c"), output("c", marked("r")["content"]), user("x")],
            {**EXPLICIT, "tools": TOOLS},
            ["r"],
            marks=contract("CACHE-HINT-013"),
        ),
    ],
)
def test_cache_points(given: list[dict[str, Any]], members: dict[str, Any], found: list[str]) -> None:
    assert points(given, **members) == found


@contract("CACHE-HINT-006")
def test_cache_points_of_stored_items_count() -> None:
    store = new_store()
    store.put(stored("resp_1", input=[marked("a")]))
    turns = read(body(previous_response_id="resp_1", input="b", **EXPLICIT), store).request.turns
    assert turns == (Turn(role="user", parts=(Text("a"), CachePoint())), Turn(role="user", parts=(Text("b"),)))


@contract("D30", "RESP-006", "RESP-013", "RESP-023", "RSTORE-011")
def test_the_echo_has_every_key() -> None:
    fields = echoed_fields(read(body()))
    assert {name: value for name, value in fields.items() if value is not None} == {
        "background": False,
        "parallel_tool_calls": True,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "truncation": "disabled",
        "metadata": {},
    }
    assert {name for name, value in fields.items() if value is None} == {
        *("instructions", "max_output_tokens", "max_tool_calls", "previous_response_id", "prompt_cache_key"),
        *("prompt_cache_retention", "safety_identifier", "user"),
    }
    said = {"temperature": 0.5, "top_p": 0.25, "max_output_tokens": 9, "metadata": {"a": "b"}, "instructions": "I"}
    given = echoed_fields(read(body(**said, reasoning={"effort": "low", "summary": "odd"}, tools=TOOLS[:1])))
    assert {name: given[name] for name in said} == said
    assert given["reasoning"] == {"effort": "low", "summary": "odd"}
    assert given["tools"] == [{"description": None, "strict": None, **TOOLS[0]}]


def test_refusals_are_errors_of_the_caller() -> None:
    with pytest.raises(Unsupported):
        read(body(background=True))
