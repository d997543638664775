"""Bodies that the tests of Messages begin with."""

from collections.abc import Mapping
from typing import Any

import pytest

from ninfer.conversation import GenerationRequest, RequestError, Turn
from ninfer.protocols.anthropic_messages.decode import decode

USER = {"role": "user", "content": "Hi"}
MARK = {"cache_control": {"type": "ephemeral"}}


def body(**members: Any) -> Any:
    """A valid body with `members` in place of its own."""
    return {"model": "m", "messages": [USER], **members}


def said(*messages: Mapping[str, Any], **members: Any) -> Any:
    """A valid body with these messages."""
    return body(messages=list(messages), **members)


def request(wire: Any) -> GenerationRequest:
    """What the body asks for."""
    return decode(wire).request


def turns(*messages: Mapping[str, Any], **members: Any) -> tuple[Turn, ...]:
    """What the messages become."""
    return request(said(*messages, **members)).turns


def refusal(wire: Any) -> tuple[str, str | None]:
    """Code and path of the refusal of a body; its message begins with the path and is ASCII (ERR-004, ERR-005)."""
    with pytest.raises(RequestError) as caught:
        decode(wire)
    error = caught.value
    assert error.message.isascii()
    assert error.message.startswith(f"{error.param}:")
    return error.code, error.param


def user(*blocks: object) -> dict[str, object]:
    """A user message of blocks."""
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: object) -> dict[str, object]:
    """An assistant message of blocks."""
    return {"role": "assistant", "content": list(blocks)}


def text(words: str, **members: object) -> dict[str, object]:
    """A text block."""
    return {"type": "text", "text": words, **members}


def thinking(words: str, signature: str = "sig") -> dict[str, object]:
    """A thinking block."""
    return {"type": "thinking", "thinking": words, "signature": signature}


def use(call_id: str, name: str = "look", **members: object) -> dict[str, object]:
    """A call."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"q": call_id}, **members}


def result(call_id: str, content: object = "found", **members: object) -> dict[str, object]:
    """What a call gave."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **members}


def tool(name: str = "look", /, **members: object) -> dict[str, object]:
    """A tool of the caller's own."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    return {"description": "Looks.", "input_schema": schema, "name": name, **members}
