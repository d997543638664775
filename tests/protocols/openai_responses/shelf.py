"""Bodies and stored Responses for tests of decoding."""

from collections.abc import Mapping, Sequence
from typing import Any

from ninfer.protocols.openai_responses.decode import ResponsesCall, decode
from ninfer.protocols.openai_responses.items import AnyItem, own_items, read_item
from ninfer.protocols.openai_responses.store import Context, ResponseStore, StoredResponse

TOOLS: Any = [
    {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
    {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f"}]},
]


def body(**members: Any) -> Any:
    """A valid body with `members` in place of its own."""
    return {"model": "m", "input": "Hi", **members}


def read(given: Any, store: ResponseStore | None = None) -> ResponsesCall:
    """`given`, decoded."""
    return decode(given, store or new_store())


def new_store(max_records: int = 10, max_bytes: int = 1 << 20) -> ResponseStore:
    """An empty store."""
    return ResponseStore(max_records=max_records, max_bytes=max_bytes)


def stored(
    response_id: str,
    *,
    input: Sequence[Mapping[str, Any]] = (),
    output: Sequence[Mapping[str, Any]] = (),
    after: StoredResponse | None = None,
    preserve: bool | None = None,
) -> StoredResponse:
    """A stored Response with these Items, `after` another."""
    given: tuple[AnyItem, ...] = tuple(read_item(f"input[{at}]", one) for at, one in enumerate(input))
    context = Context(parent=after.context if after else None, items=(*given, *own_items(output)))
    return StoredResponse(
        id=response_id,
        body={"id": response_id, "output": list(output)},
        input=given,
        context=context,
        preserve_thinking=preserve,
    )


def user(text: object, **members: object) -> dict[str, Any]:
    """A message of the user."""
    return {"type": "message", "role": "user", "content": text, **members}


def assistant(text: object, **members: object) -> dict[str, Any]:
    """A message of the assistant."""
    return {"type": "message", "role": "assistant", "content": text, **members}


def reasoning(text: str, **members: object) -> dict[str, Any]:
    """Reasoning with its text."""
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}], **members}


def call(call_id: str, name: str = "f", arguments: object = '{"a":"b"}', **members: object) -> dict[str, Any]:
    """A call."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **members}


def output(call_id: str, said: object = "ok", **members: object) -> dict[str, Any]:
    """The output of a call."""
    return {"type": "function_call_output", "call_id": call_id, "output": said, **members}
