"""Chat bodies: what is taken over, what is refused, and that an error names its place and its value."""

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

contract = pytest.mark.contract


def body(**members: Any) -> Any:
    """A valid body with `members` in place of its own."""
    return {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **members}


def said(*messages: Mapping[str, Any]) -> Any:
    return body(messages=list(messages))


def turn(content: object, role: str = "user", **members: object) -> Any:
    """What one message becomes."""
    return decode(said({"role": role, "content": content, **members})).request.turns[0]


@contract("CHAT-001")
def test_the_plain_request() -> None:
    call = decode(
        {
            "model": "qwen",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            "max_tokens": 5,
        }
    )
    assert (call.model, call.stream, call.include_usage) == ("qwen", False, False)
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
        pytest.param(None, (), id="null", marks=contract("CHAT-005")),
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


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_roles(role: str) -> None:
    assert turn("x", role).role == role


def test_the_legacy_function_role_is_a_tool_turn() -> None:
    assert turn("x", "function", name="f").role == "tool"


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
    assert decode(body(stream=True, stream_options={"include_usage": True, "include_obfuscation": False})).include_usage
    assert not decode(body(stream=True, stream_options={})).include_usage


@contract("CHAT-009")
def test_both_limits() -> None:
    assert decode(body(max_tokens=3, max_completion_tokens=3)).request.max_output_tokens == 3
    with pytest.raises(InvalidRequest, match=r"3 contradicts max_completion_tokens: 4"):
        decode(body(max_tokens=3, max_completion_tokens=4))


def test_thinking_may_be_said_in_three_ways_that_agree() -> None:
    assert decode(body(chat_template_kwargs={"enable_thinking": False})).request.thinking.enabled is False
    assert decode(body(reasoning_effort="none")).request.thinking.enabled is False
    assert decode(body(reasoning_effort="none", enable_thinking=False)).request.thinking.enabled is False
    for conflict in (
        body(reasoning_effort="none", enable_thinking=True),
        body(enable_thinking=True, chat_template_kwargs={"enable_thinking": False}),
        body(preserve_thinking=True, chat_template_kwargs={"preserve_thinking": False}),
    ):
        with pytest.raises(InvalidRequest, match="contradicts") as caught:
            decode(conflict)
        assert caught.value.code == "conflicting_template_option"


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
        pytest.param("no_such_field", {"any": ["thing"]}, marks=contract("CHAT-033", "D10")),
        pytest.param("é" * 300, None, marks=contract("CHAT-033", "D10")),
        pytest.param("n", 1, marks=contract("CHAT-016")),
        pytest.param("modalities", ["text"], marks=contract("CHAT-016")),
        pytest.param("response_format", {"type": "text"}, marks=contract("CHAT-017")),
        # what asks for nothing passes, though its part is not built (D40)
        pytest.param("tools", [], marks=contract("D40")),
        pytest.param("tool_choice", "none", marks=contract("D40")),
        pytest.param("tool_choice", "auto", marks=contract("D40")),
        pytest.param("parallel_tool_calls", False, marks=contract("D40")),
        pytest.param("functions", [], marks=contract("D40")),
        pytest.param("logprobs", False, marks=contract("D40")),
        pytest.param("top_logprobs", 0, marks=contract("D40")),
        pytest.param("logit_bias", {"5": 0}, marks=contract("D40")),
        pytest.param("store", False, marks=contract("D40")),
        pytest.param("verbosity", "medium", marks=contract("D40")),
        pytest.param("reasoning_effort", "auto", marks=contract("D40")),
        pytest.param("repetition_penalty", 1, marks=contract("D40")),
        pytest.param("mm_processor_kwargs", {"fps": None}, marks=contract("D40")),
        pytest.param("prediction", {"type": "content", "content": "x"}, marks=contract("D40")),
        pytest.param("audio", {"voice": "x", "format": "wav"}, marks=contract("D40")),
        pytest.param("chat_template_kwargs", {}, marks=contract("D40")),
    ],
)
def test_what_asks_for_nothing_changes_nothing(name: str, value: object) -> None:
    assert decode(body(**{name: value})) == decode(body())


REFUSED = [
    ("tools", [{"type": "function", "function": {"name": "f"}}], "tools"),
    ("tool_choice", "required", "tool_choice"),
    ("tool_choice", {"type": "function", "function": {"name": "f"}}, "tool_choice"),
    ("functions", [{"name": "f"}], "functions"),
    ("function_call", {"name": "f"}, "function_call"),
    ("response_format", {"type": "json_object"}, "response_format"),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}, "response_format"),
    ("structured_outputs", {"choice": ["a"]}, "structured_outputs"),
    ("logprobs", True, "logprobs"),
    ("top_logprobs", 3, "top_logprobs"),
    ("logit_bias", {"5": 1}, "logit_bias"),
    ("store", True, "store"),
    ("web_search_options", {}, "web_search_options"),
    ("moderation", {"model": "x"}, "moderation"),
    ("verbosity", "low", "verbosity"),
    ("reasoning_effort", "high", "reasoning_effort"),
    ("repetition_penalty", 1.1, "repetition_penalty"),
    ("mm_processor_kwargs", {"fps": 2}, "mm_processor_kwargs"),
    ("timings_per_token", True, "timings_per_token"),
    ("return_progress", True, "return_progress"),
    ("chat_template_kwargs", {"tools": []}, "chat_template_kwargs.tools"),
]


@contract("D40")
@pytest.mark.parametrize(
    ("name", "value", "param"), REFUSED, ids=[f"{name}-{at}" for at, (name, *_) in enumerate(REFUSED)]
)
def test_what_is_not_built_is_refused_by_name(name: str, value: object, param: str) -> None:
    with pytest.raises(Unsupported) as caught:
        decode(body(**{name: value}))
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", param)
    assert caught.value.message.startswith(f"{param}: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("n", 2, marks=contract("CHAT-016")),
        pytest.param("n", True, marks=contract("CHAT-016")),
        pytest.param("modalities", ["text", "audio"], marks=contract("CHAT-016")),
        pytest.param("modalities", [], marks=contract("CHAT-016")),
        pytest.param("grammar", "root ::= x"),
        pytest.param("guided_json", {}),
        pytest.param("guided_regex", "a"),
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
@contract("D40")
def test_parts_that_are_not_text(part: object, code: str) -> None:
    with pytest.raises(Unsupported) as caught:
        turn([{"type": "text", "text": "see"}, part])
    assert (caught.value.code, caught.value.param) == (code, "messages[0].content[1]")


@contract("D40")
def test_tool_calls_of_earlier_turns_are_refused() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    with pytest.raises(Unsupported) as caught:
        turn(None, "assistant", tool_calls=[call])
    assert caught.value.param == "messages[0].tool_calls"
    assert turn("a", "assistant", tool_calls=[]).text == "a"


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
        (body(tools=[1, 2]), "an array of 2 items"),
    ],
)
def test_errors_name_the_value(bad: Any, shown: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode(bad)
    message = caught.value.message
    assert shown in message
    assert message.isascii()
    assert len(message) < 600
