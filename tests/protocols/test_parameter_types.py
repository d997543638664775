"""Arguments by what their schema says, on every protocol: references, allOf, enums, and schemas that say nothing."""

from typing import Any

import pytest

from tests.protocols.everywhere import Said, raw, said


def call(**arguments: str) -> str:
    inside = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in arguments.items())
    return f"<tool_call>\n<function=f>\n{inside}</function>\n</tool_call>"


@pytest.mark.contract("TOOL-006", "TOOL-004")
@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"$ref": "#/$defs/n"}, "5", 5),
        ({"$ref": "#/$defs/n"}, "true", True),
        ({"allOf": [{"$ref": "#/$defs/n"}, {"minimum": 1}]}, "5", 5),
        ({"allOf": [{"type": "string"}]}, "5", "5"),
        ({}, "5", 5),
        ({}, "true", True),
        ({}, '"null"', "null"),
        ({}, "null", None),
        ({}, "hello", "hello"),
        ({"enum": ["1", "2"]}, "5", "5"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["a", None]}, "null", None),
    ],
)
async def test_values(schema: Any, text: str, value: Any) -> None:
    parameters = {"type": "object", "properties": {"a": schema}, "$defs": {"n": {"type": "integer"}}}
    assert await said(raw(call(a=text)), {"f": parameters}) == Said("", (("f", {"a": value}),))
