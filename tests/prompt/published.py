"""The published tokenizer and templates of the family, from the folder that `--shared` names."""

import lzma
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ninfer.conversation import Part, Reasoning, Text, Tool, ToolCall, Turn
from ninfer.prompt import ChatTemplate, Tokenizer


@cache
def tokenizer(shared: Path) -> Tokenizer:
    """The tokenizer that Qwen3.5, 3.6 and 3.8 share; loading takes a second."""
    return Tokenizer.from_files(lzma.decompress((shared / "data/tokenizers/qwen3_5_tokenizer.json.xz").read_bytes()))


def template(shared: Path, family: str) -> ChatTemplate:
    """A family's chat template."""
    return ChatTemplate((shared / f"data/templates/{family}.jinja").read_text())


def turn(message: Mapping[str, Any]) -> Turn:
    """The turn that a text-only message of a published case means."""
    parts: list[Part] = []
    if message.get("reasoning_content") is not None:
        parts.append(Reasoning(message["reasoning_content"]))
    parts.append(Text(message.get("content") or ""))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        parts.append(ToolCall(id=call.get("id", ""), name=function["name"], arguments=function["arguments"]))
    return Turn(role=message["role"], parts=tuple(parts), call_id=message.get("tool_call_id"))


def tool(declaration: Mapping[str, Any]) -> Tool:
    """The tool that a published case declares."""
    return Tool(name=declaration["function"]["name"], declaration=declaration)
