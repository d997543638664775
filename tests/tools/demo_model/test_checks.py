"""The judges: what counts as a right call, as the asked shape, as a loop."""

from typing import Any

import pytest

from tools.demo_model import checks
from tools.demo_model.drafts import accepted

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "paint",
            "parameters": {
                "type": "object",
                "properties": {"wall": {"type": "string"}, "coats": {"type": "integer"}, "dry": {"type": "boolean"}},
            },
        },
    }
]


def call(**arguments: str) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function=paint>\n{body}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (call(wall="left", coats="2", dry="true"), True),
        (call(dry="true", coats="2", wall="left"), True),
        (call(wall="left", coats="2", dry="True"), False),
        (call(wall="left", coats="2", dry="1"), False),
        (call(wall="left", coats="2"), False),
        (call(wall="left", coats='"2"', dry="true"), False),
        (call(wall="left", coats="2", dry="true") * 2, False),
        (call(wall="left", coats="2", dry="true").replace("paint", "print"), False),
        (call(wall="left", coats="2", dry="true").removesuffix("</tool_call>"), False),
        ("", False),
    ],
)
def test_calls(answer: str, right: bool) -> None:
    check = {"kind": "call", "name": "paint", "arguments": {"wall": "left", "coats": 2, "dry": True}}
    assert checks.verdict(check, answer, TOOLS) is right


@pytest.mark.parametrize(
    ("answer", "shape", "value"),
    [
        ('{"a": 1, "b": ["x"]}', True, True),
        ('{"b": ["x"], "a": 1}', True, True),
        ('{"a": 7, "b": ["y", "z"]}', True, False),
        ('{"a": true, "b": ["x"]}', False, False),
        ('{"a": 1, "b": [1]}', False, False),
        ('{"a": 1}', False, False),
        ('```json\n{"a": 1, "b": ["x"]}\n```', False, False),
    ],
)
def test_json(answer: str, shape: bool, value: bool) -> None:
    check: dict[str, Any] = {"kind": "json", "value": {"a": 1, "b": ["x"]}}
    assert checks.valid_shape(check, answer) is shape
    assert checks.verdict(check, answer, None) is value


@pytest.mark.parametrize(
    ("ids", "loops"),
    [(list(range(100)), False), ([1, 2, 3] * 12, True), ([7] * 33, True), ([7] * 32, False), ([*range(9)] * 9, False)],
)
def test_loops(ids: list[int], loops: bool) -> None:
    assert checks.is_loop(ids) is loops


def test_drafts_are_walked_as_in_serving() -> None:
    """Ten new tokens after five known: all right takes rounds of four; all wrong drafts three for each token."""
    right, wrong = [[True] * 20] * 3, [[False] * 20] * 3
    assert accepted(right, 5, 15) == (7, 7)
    assert accepted(wrong, 5, 15)[0] == 0
    mixed = [[True] * 20, [False] * 20, [True] * 20]  # what follows a wrong draft counts for nothing
    assert accepted(mixed, 5, 9) == (2, 4)
