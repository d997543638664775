"""Judges of answers: a small parser of calls of its own, and one verdict per kind of check. Knows no model."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

CALL = re.compile(r"<tool_call>\n<function=([^>\n]+)>\n(.*?)</function>\n</tool_call>", re.S)
PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.S)


def split_thought(reply: str, thinking: bool) -> tuple[str, str]:
    """Reasoning and visible answer of what the model wrote after the generation prompt."""
    if not thinking:
        return "", reply.strip()
    thought, mark, answer = reply.partition("</think>")
    return (thought.strip(), answer.strip()) if mark else (reply.strip(), "")


def parse_calls(answer: str) -> list[tuple[str, dict[str, str]]]:
    """(name, raw parameter texts) of each well-formed call."""
    return [(name, dict(PARAMETER.findall(body))) for name, body in CALL.findall(answer)]


def typed(raw: dict[str, str], tools: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Parameter texts as the declared types; a text that does not fit stays a text."""
    properties = next(
        (tool["function"]["parameters"]["properties"] for tool in tools if tool["function"]["name"] == name), {}
    )
    out: dict[str, Any] = {}
    for key, text in raw.items():
        out[key] = text
        if properties.get(key, {}).get("type", "string") != "string":
            with contextlib.suppress(ValueError):
                out[key] = json.loads(text)
    return out


def call_is_right(answer: str, tools: list[dict[str, Any]], name: str, arguments: dict[str, Any]) -> bool:
    """Exactly one call, the right tool, exactly the right arguments."""
    calls = parse_calls(answer)
    return len(calls) == 1 and calls[0][0] == name and same(typed(calls[0][1], tools, name), arguments)


def same(one: Any, other: Any) -> bool:
    """Equality that keeps true and 1 apart."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def read_json(answer: str) -> Any:
    """The answer as JSON, or None."""
    try:
        return json.loads(answer)
    except ValueError:
        return None


def shape_of(value: Any) -> Any:
    """Keys and types of a JSON value."""
    if isinstance(value, dict):
        return {key: shape_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return ["list", *sorted({json.dumps(shape_of(item), sort_keys=True) for item in value})]
    return "number" if isinstance(value, float) else type(value).__name__


def verdict(check: dict[str, Any], answer: str, tools: list[dict[str, Any]] | None) -> bool:
    """Whether an answer passes its check."""
    kind = check["kind"]
    if kind in ("call", "loop"):
        return call_is_right(answer, tools or [], check["name"], check["arguments"])
    if kind == "calls":
        found = [(name, typed(raw, tools or [], name)) for name, raw in parse_calls(answer)]
        return same(found, check["calls"])
    if kind == "no_call":
        return "<tool_call>" not in answer and "<function=" not in answer and bool(answer)
    if kind == "json":
        return same(read_json(answer), check["value"])
    if kind == "shape":
        value = read_json(answer)
        return isinstance(value, dict) and list(value) == check["keys"]
    if kind == "exact":
        return answer == check["answer"]
    if kind == "contains":
        return check["answer"] in answer
    if kind == "number":
        return re.findall(r"-?\d+", answer)[-1:] == [check["answer"]]
    raise ValueError(f"unknown check {kind!r}")


def valid_shape(check: dict[str, Any], answer: str) -> bool:
    """For JSON tasks: valid JSON of the asked shape, whatever the values."""
    value = read_json(answer)
    return value is not None and shape_of(value) == shape_of(check["value"])


def is_loop(ids: list[int], period: int = 8, span: int = 32) -> bool:
    """Whether the tail repeats with a period of at most `period` over `span` tokens anywhere."""
    for p in range(1, period + 1):
        run = 0
        for at in range(p, len(ids)):
            run = run + 1 if ids[at] == ids[at - p] else 0
            if run >= span:
                return True
    return False
