"""Chat bodies: what is taken over, what is refused, and that an error names its place and its value."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from ninfer.conversation import (
    InvalidRequest,
    Reasoning,
    RequestError,
    SamplingFields,
    Text,
    ThinkingFields,
    Unsupported,
)
from ninfer.protocols.openai_chat.decode import decode
from ninfer.protocols.openai_chat.encode import Shape

contract = pytest.mark.contract


def body(**members: Any) -> Any:
    """A valid body with `members` in place of its own."""
    return {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **members}


def said(*messages: Mapping[str, Any]) -> Any:
    return body(messages=list(messages))


UNCACHED = {"prompt_cache_options": {"mode": "explicit"}}
"""Asks for no cache point that the body does not mark."""


def turn(content: object, role: str = "user", **members: object) -> Any:
    """What one message becomes."""
    message = {"role": role, "content": content, **members}
    return decode(body(messages=[message, {"role": "user", "content": "x"}], **UNCACHED)).request.turns[0]


@contract("CHAT-001")
def test_the_plain_request() -> None:
    call = decode(
        {
            "model": "qwen",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            "max_tokens": 5,
        }
    )
    assert (call.model, call.stream, call.shape.include_usage) == ("qwen", False, False)
    assert [(one.role, one.text) for one in call.request.turns] == [("system", "Be brief."), ("user", "Hi")]
    assert call.request.max_output_tokens == 5
    assert call.request.sampling == SamplingFields()
    assert call.request.thinking == ThinkingFields()


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        pytest.param("ab", ("ab",), id="string", marks=contract("CHAT-004")),
        pytest.param(
            [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}],
            ("a", " b"),
            id="parts stay apart and in order",
            marks=contract("CHAT-004"),
        ),
        pytest.param("", (), id="empty string", marks=contract("CHAT-005")),
        pytest.param([], (), id="no parts", marks=contract("CHAT-005")),
        pytest.param([{"type": "text", "text": ""}], ("",), id="an empty part", marks=contract("CHAT-005")),
    ],
)
def test_content(content: object, parts: tuple[str, ...]) -> None:
    one = turn(content)
    assert one.parts == tuple(map(Text, parts))
    assert one.text == "".join(parts)


@contract("CHAT-004")
def test_a_refusal_is_text_of_the_assistant_alone() -> None:
    refusal = [{"type": "text", "text": "No. "}, {"type": "refusal", "refusal": "I will not."}]
    assert turn(refusal, "assistant").text == "No. I will not."
    with pytest.raises(InvalidRequest, match="refusal") as caught:
        turn(refusal, "user")
    assert caught.value.param == "messages[0].content[1].type"


@contract("CHAT-027")
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_history(name: str) -> None:
    assert turn("a", "assistant", **{name: "r"}).parts == (Reasoning("r"), Text("a"))
    assert turn("a", "assistant", **{name: ""}).reasoning == ""
    assert turn("a", "assistant", **{name: None}).reasoning is None
    assert turn("a", "user", **{name: "r"}).reasoning is None


def sampled(name: str) -> Any:
    return lambda call: getattr(call.request.sampling, name)


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        pytest.param("temperature", 0, sampled("temperature"), marks=contract("CHAT-011")),
        pytest.param("temperature", 2, sampled("temperature"), marks=contract("CHAT-011")),
        pytest.param("top_p", 0.25, sampled("top_p"), marks=contract("CHAT-011")),
        pytest.param("presence_penalty", -2, sampled("presence_penalty"), marks=contract("CHAT-011")),
        pytest.param("frequency_penalty", 2, sampled("frequency_penalty"), marks=contract("CHAT-011")),
        pytest.param("seed", -(1 << 63), sampled("seed"), marks=contract("CHAT-012")),
        pytest.param("seed", (1 << 63) - 1, sampled("seed"), marks=contract("CHAT-012")),
        pytest.param("top_k", 0, sampled("top_k"), marks=contract("CHAT-013")),
        pytest.param("top_k", 20, sampled("top_k"), marks=contract("CHAT-013")),
        pytest.param("min_p", 1, sampled("min_p"), marks=contract("CHAT-013")),
        pytest.param("max_tokens", 7, lambda call: call.request.max_output_tokens, marks=contract("CHAT-009")),
        pytest.param("max_tokens", 0, lambda call: call.request.max_output_tokens, marks=contract("CHAT-010")),
        pytest.param(
            "max_completion_tokens", 7, lambda call: call.request.max_output_tokens, marks=contract("CHAT-009")
        ),
        pytest.param("stream", True, lambda call: call.stream, marks=contract("CHAT-018")),
        pytest.param("enable_thinking", False, lambda call: call.request.thinking.enabled),
        pytest.param("preserve_thinking", True, lambda call: call.request.thinking.preserve),
    ],
)
def test_fields_that_are_taken_over(name: str, value: object, read: Any) -> None:
    assert read(decode(body(**{name: value}))) == value
    assert read(decode(body(**{name: None}))) == read(decode(body()))  # null is as good as nothing


@contract("CHAT-014")
@pytest.mark.parametrize(
    ("value", "stops"),
    [("a", ("a",)), (["a"], ("a",)), (["a", "b", "c", "d"], ("a", "b", "c", "d")), ([], ()), (None, ())],
)
def test_stop(value: object, stops: tuple[str, ...]) -> None:
    assert decode(body(stop=value)).request.stop == stops


@contract("CHAT-018")
def test_usage_in_the_stream() -> None:
    assert decode(
        body(stream=True, stream_options={"include_usage": True, "include_obfuscation": False})
    ).shape.include_usage
    assert not decode(body(stream=True, stream_options={})).shape.include_usage


@contract("CHAT-009")
def test_both_limits() -> None:
    assert decode(body(max_tokens=3, max_completion_tokens=3)).request.max_output_tokens == 3
    with pytest.raises(InvalidRequest, match=r"3 contradicts max_completion_tokens: 4"):
        decode(body(max_tokens=3, max_completion_tokens=4))


@contract("CHAT-026", "TMPL-014", "TMPL-017", "ERR-016")
def test_thinking_may_be_said_in_three_ways_that_agree() -> None:
    for off in (
        body(enable_thinking=False),
        body(chat_template_kwargs={"enable_thinking": False}),
        body(reasoning_effort="none"),
        body(chat_template_kwargs={"reasoning_effort": "none"}),
        body(reasoning_effort="none", enable_thinking=False, chat_template_kwargs={"enable_thinking": False}),
    ):
        assert decode(off).request.thinking == ThinkingFields(enabled=False)
    assert decode(body(chat_template_kwargs={"preserve_thinking": True})).request.thinking.preserve is True
    for conflict in (
        body(reasoning_effort="none", enable_thinking=True),
        body(reasoning_effort="low", enable_thinking=False),
        body(reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "high"}),
        body(enable_thinking=True, chat_template_kwargs={"enable_thinking": False}),
        body(preserve_thinking=True, chat_template_kwargs={"preserve_thinking": False}),
    ):
        with pytest.raises(InvalidRequest, match="contradicts") as caught:
            decode(conflict)
        assert caught.value.code == "conflicting_template_option"


@contract("THINK-012")
@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high", "xhigh", "max"])
def test_effort_is_passed_on_as_it_was_named(effort: str) -> None:
    assert decode(body(reasoning_effort=effort)).request.thinking == ThinkingFields(effort=effort)


@contract("TMPL-013", "TMPL-015")
def test_kwargs_reach_the_template_as_they_are() -> None:
    kwargs = {"zeta": {"b": 1, "a": [None]}, "alpha": None, "enable_thinking": None}
    request = decode(body(chat_template_kwargs=kwargs)).request
    assert dict(request.template_kwargs) == {"zeta": {"b": 1, "a": [None]}, "alpha": None}
    assert list(request.template_kwargs) == ["zeta", "alpha"]
    assert request.thinking == ThinkingFields()


@contract("OBS-011", "OBS-013")
def test_observations() -> None:
    call = decode(body(timings_per_token=True, return_progress=True))
    assert call.shape == Shape(timings_per_token=True, progress=True)
    assert decode(body()).shape == Shape()


@contract("TMPL-002", "D8")
def test_a_final_assistant_turn_is_taken_over() -> None:
    call = decode(said({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "It was"}))
    assert (call.request.turns[-1].role, call.request.turns[-1].text) == ("assistant", "It was")
    assert call.request.thinking.enabled is None  # omitted means nothing here, unlike in Messages


@contract("ERR-011", "TMPL-003")
@pytest.mark.parametrize(
    "last",
    [
        {"tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"content": "x", "function_call": {"name": "f", "arguments": "{}"}},
        {"content": "", "reasoning_content": "Let me"},
        {"content": ""},
        {"content": []},
        {"content": [{"type": "text", "text": ""}]},
    ],
)
def test_a_final_turn_that_cannot_be_continued(last: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode(said({"role": "user", "content": "Hi"}, {"role": "assistant", **last}))
    assert (caught.value.code, caught.value.param) == ("invalid_prompt", "messages[1]")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("metadata", {"a": "b"}, marks=contract("CHAT-032")),
        pytest.param("metadata", 7, marks=contract("CHAT-032")),
        pytest.param("user", ["x"], marks=contract("CHAT-032")),
        pytest.param("safety_identifier", 1, marks=contract("CHAT-032")),
        pytest.param("service_tier", "priority", marks=contract("CHAT-032")),
        pytest.param("prompt_cache_key", "k", marks=contract("CHAT-032")),
        pytest.param("prompt_cache_retention", "24h", marks=contract("CHAT-032")),
        pytest.param("prompt_cache_options", {"mode": "x"}, marks=contract("CHAT-032")),
        pytest.param("prompt_cache_options", {"mode": "implicit", "ttl": "24h"}, marks=contract("CACHE-HINT-012")),
        pytest.param("prompt_cache_retention", "in_memory", marks=contract("CACHE-HINT-012")),
        pytest.param("no_such_field", {"any": ["thing"]}, marks=contract("CHAT-033", "D10")),
        pytest.param("é" * 300, None, marks=contract("CHAT-033", "D10")),
        pytest.param("n", 1, marks=contract("CHAT-016")),
        pytest.param("modalities", ["text"], marks=contract("CHAT-016")),
        pytest.param("response_format", {"type": "text"}, marks=contract("CHAT-017")),
        pytest.param("tools", []),
        pytest.param("tool_choice", "auto"),
        pytest.param("parallel_tool_calls", False, marks=contract("CHAT-031")),
        pytest.param("functions", [], marks=contract("CHAT-031")),
        pytest.param("function_call", "none", marks=contract("CHAT-031")),
        pytest.param("function_call", "auto", marks=contract("CHAT-031")),
        pytest.param("logprobs", False, marks=contract("CHAT-031")),
        pytest.param("top_logprobs", 0, marks=contract("CHAT-031")),
        pytest.param("logit_bias", {"5": 0}, marks=contract("CHAT-031")),
        pytest.param("logit_bias", {}, marks=contract("CHAT-031")),
        pytest.param("store", False),
        pytest.param("verbosity", "medium", marks=contract("CHAT-031")),
        pytest.param("reasoning_effort", "auto"),
        pytest.param("reasoning_effort", "default"),
        pytest.param("repetition_penalty", 1, marks=contract("CHAT-036")),
        pytest.param("repetition_penalty", 1.0, marks=contract("CHAT-036")),
        pytest.param("mm_processor_kwargs", {"fps": None}, marks=contract("CHAT-036")),
        pytest.param("mm_processor_kwargs", {}, marks=contract("CHAT-036")),
        pytest.param("prediction", {"type": "content", "content": "x"}, marks=contract("CHAT-031")),
        pytest.param("audio", {"voice": "x", "format": "wav"}, marks=contract("CHAT-031")),
        pytest.param("chat_template_kwargs", {}),
        pytest.param("tool_constraints", "auto", marks=contract("D40")),
        pytest.param("timings_per_token", False),
    ],
)
def test_what_asks_for_nothing_changes_nothing(name: str, value: object) -> None:
    assert decode(body(**{name: value})) == decode(body())


REFUSED = [
    ("tool_choice", "required", "tool_choice", "D40"),
    ("tool_choice", {"type": "function", "function": {"name": "f"}}, "tool_choice", "D40"),
    ("tool_choice", {"type": "custom", "custom": {"name": "f"}}, "tool_choice", "D40"),
    ("tool_choice", {"type": "allowed_tools", "allowed_tools": {}}, "tool_choice", "D40"),
    ("tool_constraints", "strict", "tool_constraints", "D40"),
    ("functions", [{"name": "f"}], "functions", "CHAT-028"),
    ("function_call", {"name": "f"}, "function_call", "CHAT-028"),
    ("response_format", {"type": "json_object"}, "response_format", "D40"),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}, "response_format", "D40"),
    ("structured_outputs", {"choice": ["a"]}, "structured_outputs", "D40"),
    ("logprobs", True, "logprobs", "CHAT-028"),
    ("top_logprobs", 3, "top_logprobs", "CHAT-028"),
    ("logit_bias", {"5": 1}, "logit_bias", "CHAT-028"),
    ("logit_bias", {"5": False}, "logit_bias", "CHAT-028"),
    ("store", True, "store", "CHAT-028"),
    ("web_search_options", {}, "web_search_options", "CHAT-029"),
    ("moderation", {"model": "x"}, "moderation", "CHAT-029"),
    ("verbosity", "low", "verbosity", "CHAT-029"),
    ("verbosity", "high", "verbosity", "CHAT-029"),
    ("modalities", ["text", "audio"], "modalities", "CHAT-029"),
    ("repetition_penalty", 1.1, "repetition_penalty", "CHAT-036"),
    ("repetition_penalty", True, "repetition_penalty", "CHAT-036"),
    ("mm_processor_kwargs", {"fps": 2}, "mm_processor_kwargs", "CHAT-036"),
    ("chat_template_kwargs", {"tools": []}, "chat_template_kwargs.tools", "TMPL-016"),
    (
        "chat_template_kwargs",
        {"add_generation_prompt": False},
        "chat_template_kwargs.add_generation_prompt",
        "TMPL-016",
    ),
]


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        pytest.param(name, value, param, id=f"{name}-{at}", marks=contract(held, "CHAT-030"))
        for at, (name, value, param, held) in enumerate(REFUSED)
    ],
)
def test_a_capability_that_is_not_given_is_refused_by_name(name: str, value: object, param: str) -> None:
    with pytest.raises(Unsupported) as caught:
        decode(body(**{name: value}))
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", param)
    said_where, _, guarantee = caught.value.message.partition(" is not supported: ")
    assert said_where.startswith(f"{param}: ")
    assert guarantee


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("n", 2, marks=contract("CHAT-016")),
        pytest.param("n", True, marks=contract("CHAT-016")),
        pytest.param("modalities", ["text", "audio"], marks=contract("CHAT-016")),
        pytest.param("modalities", [], marks=contract("CHAT-016")),
        pytest.param("grammar", "root ::= x"),
        pytest.param("guided_json", {}, marks=contract("CHAT-030")),
        pytest.param("guided_regex", "a", marks=contract("CHAT-030")),
        pytest.param("chat_template", "{{ messages }}", marks=contract("D44")),
    ],
)
def test_refused_for_good(name: str, value: object) -> None:
    with pytest.raises(Unsupported) as caught:
        decode(body(**{name: value}))
    assert caught.value.param == name
    if name in ("grammar", "guided_json", "guided_regex"):
        assert "structured_outputs" in caught.value.message


@contract("D44")
def test_a_template_in_the_kwargs_is_refused_too() -> None:
    with pytest.raises(Unsupported) as caught:
        decode(body(chat_template_kwargs={"chat_template": "x"}))
    assert caught.value.param == "chat_template_kwargs.chat_template"


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({"type": "image_url", "image_url": {"url": "data:,"}}, "vision_disabled"),
        ({"type": "video_url", "video_url": "http://x"}, "vision_disabled"),
        ({"type": "input_audio", "input_audio": {}}, "unsupported_parameter"),
        ({"type": "file", "file": {}}, "unsupported_parameter"),
    ],
)
@contract("CHAT-029", "CHAT-030", "D40")
def test_parts_that_are_not_text(part: object, code: str) -> None:
    with pytest.raises(Unsupported) as caught:
        turn([{"type": "text", "text": "see"}, part])
    assert (caught.value.code, caught.value.param) == (code, "messages[0].content[1]")
    where, _, guarantee = caught.value.message.partition(": ")
    assert where == "messages[0].content[1]"
    assert re.search("needs vision|(audio is|files are) not read", guarantee)


@contract("ERR-003", "ERR-005")
@pytest.mark.parametrize(
    ("bad", "param"),
    [
        ([], None),
        ("text", None),
        ({"messages": [{"role": "user", "content": "x"}]}, "model"),
        (body(model=5), "model"),
        (body(model=None), "model"),
        ({"model": "m"}, "messages"),
        (body(messages=[]), "messages"),
        (body(messages={"role": "user"}), "messages"),
        (body(messages="Hi"), "messages"),
        (body(messages=["Hi"]), "messages[0]"),
        (said({"content": "x"}), "messages[0].role"),
        (said({"role": "usr", "content": "x"}), "messages[0].role"),
        (said({"role": "user", "content": "x"}, {"role": 3, "content": "x"}), "messages[1].role"),
        (said({"role": "user", "content": 5}), "messages[0].content"),
        (said({"role": "user", "content": {}}), "messages[0].content"),
        (said({"role": "user", "content": ["x"]}), "messages[0].content[0]"),
        (said({"role": "user", "content": [{"text": "x"}]}), "messages[0].content[0].type"),
        (said({"role": "user", "content": [{"type": "txt", "text": "x"}]}), "messages[0].content[0].type"),
        (said({"role": "user", "content": [{"type": "text"}]}), "messages[0].content[0].text"),
        (said({"role": "user", "content": [{"type": "text", "text": 1}]}), "messages[0].content[0].text"),
        (said({"role": "user", "content": "x", "name": 1}), "messages[0].name"),
        (said({"role": "user", "content": "x", "name": "Ann"}), "messages[0].name"),
        (said({"role": "assistant", "content": "x", "reasoning_content": 1}), "messages[0].reasoning_content"),
        (
            said({"role": "assistant", "content": "x", "reasoning_content": "a", "reasoning": "b"}),
            "messages[0].reasoning",
        ),
        (body(tools={}), "tools"),
        (body(tools=["f"]), "tools[0]"),
        (body(tool_choice=5), "tool_choice"),
        (body(tool_choice="any"), "tool_choice"),
        (body(tool_choice={"type": "tool"}), "tool_choice"),
        (body(parallel_tool_calls="no"), "parallel_tool_calls"),
        (body(reasoning_effort="extreme"), "reasoning_effort"),
        (body(reasoning_effort=3), "reasoning_effort"),
        (body(timings_per_token=1), "timings_per_token"),
        (body(return_progress="yes"), "return_progress"),
        (body(temperature="hot"), "temperature"),
        (body(temperature=True), "temperature"),
        (body(temperature=2.5), "temperature"),
        (body(temperature=-0.1), "temperature"),
        (body(top_p=1.5), "top_p"),
        (body(min_p=-1), "min_p"),
        (body(top_k=21), "top_k"),
        (body(top_k=-1), "top_k"),
        (body(top_k=1.5), "top_k"),
        (body(presence_penalty=-2.1), "presence_penalty"),
        (body(frequency_penalty=[]), "frequency_penalty"),
        (body(seed=1.5), "seed"),
        (body(seed=1 << 63), "seed"),
        (body(seed="1"), "seed"),
        (body(max_tokens=-1), "max_tokens"),
        (body(max_completion_tokens=1.5), "max_completion_tokens"),
        (body(stop=""), "stop"),
        (body(stop=["a", ""]), "stop[1]"),
        (body(stop=["a", 1]), "stop[1]"),
        (body(stop=list("abcde")), "stop"),
        (body(stop={}), "stop"),
        (body(stream="yes"), "stream"),
        (body(stream_options=[]), "stream_options"),
        (body(stream_options={"include_usage": 1}), "stream_options.include_usage"),
        (body(enable_thinking="no"), "enable_thinking"),
        (body(chat_template_kwargs=[]), "chat_template_kwargs"),
        (body(chat_template_kwargs={"enable_thinking": 1}), "chat_template_kwargs.enable_thinking"),
    ],
)
def test_malformed_bodies_name_their_place(bad: Any, param: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        decode(bad)
    assert isinstance(caught.value, InvalidRequest)
    assert caught.value.param == param
    assert caught.value.message.startswith(f"{param or 'body'}: ")


@contract("ERR-004")
@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        (body(temperature=2.5), "got 2.5"),
        (body(temperature="heiß"), r'got "hei\u00df"'),
        (body(stop=["x"] * 7), "got an array of 7 items"),
        (said({"role": "é" * 5000, "content": "x"}), "(5000 characters)"),
        (body(seed=10**80), "(81 digits)"),
        (body(stream_options={"include_usage": {"a": 1}}), "got an object of 1 member"),
        (body(logit_bias=[1, 2]), "an array of 2 items"),
    ],
)
def test_errors_name_the_value(bad: Any, shown: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode(bad)
    message = caught.value.message
    assert shown in message
    assert message.isascii()
    assert len(message) < 600
