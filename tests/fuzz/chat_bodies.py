"""Valid Chat bodies of many forms: what the fuzz tests start from. Each of them is answered 200 as it stands."""

from typing import Any

from tests.fuzz.house import MODEL

WORDS = (
    "model", "messages", "role", "content", "type", "text",
    "refusal", "user", "assistant", "system", "developer", "tool",
    "function", "name", "stream", "stream_options", "include_usage", "max_tokens",
    "max_completion_tokens", "seed", "stop", "temperature", "top_p", "top_k",
    "min_p", "n", "tools", "tool_choice", "tool_calls", "tool_call_id",
    "function_call", "functions", "response_format", "json_schema", "logprobs", "logit_bias",
    "reasoning_effort", "reasoning_content", "enable_thinking", "chat_template_kwargs", "image_url", "metadata",
    "store", "chat_template", "grammar", "arguments", "parameters", "strict",
    "custom", "input", "get_weather", "auto", "none", "required",
    "prompt_cache_breakpoint", "explicit", "return_progress", "timings_per_token", "default", "low",
)  # fmt: skip
"""Names and values that mean something on this route."""


def user(text: Any) -> dict[str, Any]:
    """A message of the user."""
    return {"role": "user", "content": text}


def chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A body."""
    return {"model": MODEL, "messages": list(messages) or [user("Hello")], **fields}


WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "How it is.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}

BODIES: list[dict[str, Any]] = [
    chat(user("Tell me about tides, please. " * 3), max_tokens=9),
    chat({"role": "system", "content": "Answer in one word."}, user("Why?"), max_completion_tokens=5, temperature=0),
    chat({"role": "developer", "content": "Be kind."}, user(""), stream=True, max_tokens=7),
    chat(
        user([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]),
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=8,
    ),
    chat(
        user("What is 2 + 2?"),
        {"role": "assistant", "content": "4", "reasoning_content": "easy"},
        user("And 3 + 3? " * 10),
        temperature=0.7,
        top_p=0.9,
        top_k=10,
        min_p=0.05,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        seed=-7,
        max_tokens=6,
    ),
    chat(user("[[say:stop]] and go on"), stop=["top", "\n\n"], max_tokens=12),
    chat(user("[[say:stop]]"), stop="go", stream=True, enable_thinking=False),
    chat(user("[[think]] [[say:done]]"), chat_template_kwargs={"enable_thinking": True}, stream=True, n=1),
    chat(
        user("Hi"),
        {"role": "assistant", "content": [{"type": "text", "text": "Ho"}, {"type": "refusal", "refusal": "No."}]},
        user("Why not? ☂ 你好 👩‍👩‍👧‍👦"),
        max_tokens=4,
        response_format={"type": "text"},
        modalities=["text"],
    ),
    chat(
        user("Hello there. " * 20),
        max_tokens=3,
        metadata={"a": "b", "trace": "x" * 40},
        user="someone",
        safety_identifier="s",
        service_tier="auto",
        prompt_cache_key="k",
        tools=[],
        tool_choice="auto",
        logprobs=False,
        logit_bias={"5": 0},
        store=False,
        something_new={"deep": [1, {"er": None}]},
    ),
    chat(user("Nothing, thank you."), max_tokens=0),
    chat(
        user("Begin."),
        {"role": "assistant", "content": "It was a"},
        enable_thinking=False,
        max_tokens=5,
        stream=True,
    ),
    chat(
        user('[[call:get_weather {"city": "Rome", "days": 3}]]'),
        tools=[WEATHER, {"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}}],
        tool_choice="auto",
        parallel_tool_calls=True,
        stream=True,
        max_tokens=300,
    ),
    chat(
        user("[[then:get_weather]] [[say:sunny]]"),
        {
            "role": "assistant",
            "content": None,
            "reasoning": "look",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}},
                {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "x"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "warm"}]},
        {"role": "tool", "tool_call_id": "c2", "content": "done", "name": "patch"},
        tools=[WEATHER],
        tool_choice="none",
        reasoning_effort="low",
        chat_template_kwargs={"tone": {"a": None}, "preserve_thinking": True},
        max_tokens=30,
    ),
    chat(
        user([{"type": "text", "text": "long " * 40, "prompt_cache_breakpoint": {"mode": "explicit"}}]),
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}, "content": ""},
        {"role": "function", "name": "f", "content": "1"},
        stream=True,
        return_progress=True,
        timings_per_token=True,
        stream_options={"include_usage": True},
        prompt_cache_options={"mode": "implicit"},
        max_tokens=6,
    ),
]
