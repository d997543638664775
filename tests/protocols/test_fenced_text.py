"""Calls behind text with back-ticks: they are calls on every protocol, unless they stand in a fence (K4)."""

import pytest

from tests.protocols.everywhere import Said, raw, said

CALL = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
TOOLS = {"f": {"type": "object", "properties": {"a": {"type": "integer"}}}}


@pytest.mark.parametrize(
    "text",
    [
        "```ls -la``` lists files. Running it.",
        "- ```bash\n  ls\n  ```\n\nRunning.",
        "Run this:\n```npm test```",
    ],
)
async def test_back_ticks_that_are_no_open_fence_hide_no_call(text: str) -> None:
    assert await said(raw(f"{text}\n\n{CALL}"), TOOLS) == Said(text, (("f", {"a": 1}),))


async def test_a_call_in_a_fence_is_text() -> None:
    text = f"So it is written:\n\n```xml\n{CALL}\n```"
    assert await said(raw(text), TOOLS) == Said(text, ())
