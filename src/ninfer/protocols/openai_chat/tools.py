"""The tools of a Chat request: functions, and free-form tools that the model sees as functions of one string.

It knows declarations and `tool_choice`, not calls. Invariant: what the template shows of a function is what the caller
wrote, members in their order (TMPL-005).
"""

import re
from collections.abc import Mapping, Sequence

from ninfer.conversation import InvalidRequest, Tool
from ninfer.protocols.openai_chat.wire import CustomTool, FunctionTool, WireTool
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.refusal import unsupported
from ninfer.protocols.structure import structure
from ninfer.protocols.values import shown

FREE_FORM_PARAMETER = "input"
"""The one parameter of a free-form tool, as the model knows it."""

_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
_SHOWN = ("name", "description", "parameters")
_CHOICES = ("function", "custom", "allowed_tools")
_FORCED = "calls cannot be forced or restricted in this build"


def read_tools(declared: Sequence[Mapping[str, JSONValue]]) -> tuple[Tool, ...]:
    """The tools of a body, in the caller's order.

    Raises:
        InvalidRequest: a malformed declaration, or two of one name.
        Unsupported: arguments or an input that would have to be constrained.
    """
    tools: list[Tool] = []
    for at, raw in enumerate(declared):
        path = f"tools[{at}]"
        wire = structure(raw, WireTool, at=path)
        inner = wire.function if wire.type == "function" else wire.custom
        if inner is None:
            raise InvalidRequest(
                f"{path}.{wire.type}: is required", code="missing_required_parameter", param=f"{path}.{wire.type}"
            )
        path = f"{path}.{wire.type}"
        _check_name(path, inner.name, tools)
        tools.append(
            _function(path, inner, raw[wire.type]) if isinstance(inner, FunctionTool) else _custom(path, inner)
        )
    return tuple(tools)


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


def check_parallel(parallel_tool_calls: bool, tools: Sequence[Tool]) -> None:
    """Raise `Unsupported` where one call at most would have to be enforced."""
    if not parallel_tool_calls and tools:
        raise unsupported("parallel_tool_calls", False, "the number of calls cannot be limited in this build")


def _check_name(path: str, name: str, before: Sequence[Tool]) -> None:
    """Names become part of the markup that the model writes."""
    path = f"{path}.name"
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{path}: expected 1 to 128 letters, digits, _, - or ., got {shown(name)}", param=path)
    if any(tool.name == name for tool in before):
        raise InvalidRequest(f"{path}: {shown(name)} is declared twice", param=path)


def _function(path: str, function: FunctionTool, raw: JSONValue) -> Tool:
    if function.strict:
        raise unsupported(f"{path}.strict", True, "arguments are not constrained by their schema in this build")
    assert isinstance(raw, dict)
    described = {name: value for name, value in raw.items() if name in _SHOWN and value is not None}
    return Tool(
        name=function.name,
        declaration={"type": "function", "function": described},
        parameters=function.parameters,
    )


def _custom(path: str, custom: CustomTool) -> Tool:
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
