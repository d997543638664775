"""The tools of a Chat request: functions, and free-form tools that the model sees as functions of one string.

It knows declarations and `tool_choice`, not calls. Invariant: what the template shows of a function is what the caller
wrote, members in their order (TMPL-005).
"""

from collections.abc import Mapping, Sequence

from ninfer.conversation import InvalidRequest, Tool
from ninfer.protocols.function_tools import FunctionTool, check_name, declared_twice, function_tool
from ninfer.protocols.openai_chat.wire import CustomTool, WireTool
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.refusal import unsupported
from ninfer.protocols.structure import missing, structure
from ninfer.protocols.values import shown

FREE_FORM_PARAMETER = "input"
"""The one parameter of a free-form tool, as the model knows it."""

_CHOICES = ("function", "custom", "allowed_tools")
_FORCED = "calls cannot be forced or restricted in this build"


def read_tools(declared: Sequence[Mapping[str, JSONValue]]) -> tuple[Tool, ...]:
    """The tools of a body, in the caller's order.

    Raises:
        InvalidRequest: a malformed declaration, or two of one name.
        Unsupported: arguments or an input that would have to be constrained.
    """
    tools: dict[str, Tool] = {}
    for at, raw in enumerate(declared):
        path = f"tools[{at}]"
        wire = structure(raw, WireTool, at=path)
        inner = wire.function if wire.type == "function" else wire.custom
        if inner is None:
            raise missing(f"{path}.{wire.type}")
        path = f"{path}.{wire.type}"
        made = function_tool(path, inner, raw[wire.type]) if isinstance(inner, FunctionTool) else _custom(path, inner)
        if made.name in tools:
            raise declared_twice(f"{path}.name", made.name)
        tools[made.name] = made
    return tuple(tools.values())


def calls_allowed(choice: JSONValue) -> bool:
    """What `tool_choice` says: whether the model may call.

    Raises:
        InvalidRequest: no form of a tool choice.
        Unsupported: it forces a call, or restricts which.
    """
    if choice is None or choice == "auto" or choice == "none":
        return choice != "none"
    if choice == "required":
        raise unsupported("tool_choice", choice, _FORCED)
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind in _CHOICES:
        raise unsupported("tool_choice", kind, _FORCED)
    raise InvalidRequest(
        f'tool_choice: expected "auto", "none", "required" or an object whose type is one of {", ".join(_CHOICES)}, '
        f"got {shown(choice)}",
        param="tool_choice",
    )


def _custom(path: str, custom: CustomTool) -> Tool:
    check_name(f"{path}.name", custom.name)
    kind = None if custom.format is None else custom.format.get("type")
    if kind not in (None, "text"):
        raise unsupported(f"{path}.format", kind, "the input of a free-form tool is not constrained in this build")
    parameters = {
        "type": "object",
        "properties": {FREE_FORM_PARAMETER: {"type": "string"}},
        "required": [FREE_FORM_PARAMETER],
    }
    described = {"name": custom.name, "description": custom.description, "parameters": parameters}
    return Tool(
        name=custom.name,
        declaration={
            "type": "function",
            "function": {name: value for name, value in described.items() if value is not None},
        },
        parameters=parameters,
        free_form=True,
    )
