"""The tools of a Messages request: what the model is shown of them, and which stay out of its sight (D24)."""

from collections.abc import Mapping, Sequence

from ninfer.conversation import InvalidRequest, Tool
from ninfer.protocols.anthropic_messages.breakpoints import Breakpoints
from ninfer.protocols.anthropic_messages.refused import refuse_tool
from ninfer.protocols.anthropic_messages.wire import WireMessage, WireTool
from ninfer.protocols.function_tools import check_name, declared_twice
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.structure import structure
from ninfer.protocols.values import shown

_SHOWN_AS = {
    "name": "name",
    "description": "description",
    "input_schema": "parameters",
    "input_examples": "input_examples",
}


def referenced_tools(messages: Sequence[WireMessage]) -> frozenset[str]:
    """Names of the tools that results of the history refer to: those are loaded, deferred or not."""
    return frozenset(
        name
        for message in messages
        for block in _objects(message.content, "tool_result")
        for inner in _objects(block.get("content"), "tool_reference")
        if isinstance(name := inner.get("tool_name"), str)
    )


def lower_tools(
    tools: Sequence[Mapping[str, JSONValue]], loaded: frozenset[str], marks: Breakpoints
) -> tuple[Tool, ...]:
    """The tools that the model sees: all but those that are deferred and not `loaded`.

    Raises:
        InvalidRequest: malformed, or a name comes twice.
        Unsupported: a tool that the caller does not run itself, or that asks for what is not offered.
    """
    lowered: list[Tool] = []
    seen: set[str] = set()
    for at, members in enumerate(tools):
        path = f"tools[{at}]"
        refuse_tool(path, members)
        tool = structure(members, WireTool, at=path)
        check_name(f"{path}.name", tool.name)
        if tool.name in seen:
            raise declared_twice(f"{path}.name", tool.name)
        seen.add(tool.name)
        kind = tool.input_schema.get("type", "object")
        if kind != "object":
            raise InvalidRequest(
                f'{path}.input_schema.type: expected "object", got {shown(kind)}', param=f"{path}.input_schema.type"
            )
        if tool.defer_loading and tool.name not in loaded:
            continue
        marks.piece()
        lowered.append(
            Tool(
                name=tool.name,
                declaration=_declaration(members),
                parameters=tool.input_schema,
                cache_point=bool(marks.mark(path, tool.cache_control)),
            )
        )
    return tuple(lowered)


def _declaration(members: Mapping[str, JSONValue]) -> Mapping[str, object]:
    function = {_SHOWN_AS[name]: value for name, value in members.items() if name in _SHOWN_AS and value is not None}
    return {"type": "function", "function": function}


def _objects(blocks: object, kind: str) -> list[Mapping[str, JSONValue]]:
    """The blocks of one type; whatever is malformed is refused where the history is read."""
    if not isinstance(blocks, list | tuple):
        return []
    return [block for block in blocks if isinstance(block, dict) and block.get("type") == kind]
