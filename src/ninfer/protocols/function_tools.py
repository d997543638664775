"""The functions that a caller declares: what is asked of all, and the form that Chat has made common.

    read_functions([{"type": "function", "function": {"name": ..., "parameters": ...}}])

It knows declarations, not calls. Names become part of the markup that the model writes. Invariant: what the template
shows of a function is what the caller wrote, members in their order (TMPL-005).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import attrs

from ninfer.conversation import TOOL_NAME, InvalidRequest, Tool
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.refusal import unsupported
from ninfer.protocols.structure import AnyObject, Flag, String, Text, structure
from ninfer.protocols.values import shown

UNCONSTRAINED_ARGUMENTS = "arguments are not constrained by their schema in this build"
UNLIMITED_CALLS = "the number of calls cannot be limited in this build"
CALLED_BY_THE_MODEL = "tools are called by the model alone"

MOST_NAME_CHARS = 128

_SHOWN = ("name", "description", "parameters")


@attrs.frozen(kw_only=True)
class FunctionTool:
    """A function as it is declared; without parameters it takes none."""

    name: Text
    description: Text | None = None
    parameters: AnyObject | None = None
    strict: Flag = False


@attrs.frozen(kw_only=True)
class _Declared:
    function: FunctionTool
    type: Annotated[str, String(one_of=("function",))] = "function"


def read_functions(declared: Sequence[Mapping[str, JSONValue]], *, at: str = "tools") -> tuple[Tool, ...]:
    """The functions that an array at the path `at` declares, in the caller's order.

    Raises:
        InvalidRequest: a malformed declaration, or two of one name.
        Unsupported: arguments that would have to be constrained.
    """
    tools: dict[str, Tool] = {}
    for number, raw in enumerate(declared):
        path = f"{at}[{number}]"
        made = function_tool(f"{path}.function", structure(raw, _Declared, at=path).function, raw["function"])
        if made.name in tools:
            raise declared_twice(f"{path}.function.name", made.name)
        tools[made.name] = made
    return tuple(tools.values())


def function_tool(path: str, function: FunctionTool, raw: JSONValue) -> Tool:
    """The tool that `function`, which was read from `raw` at `path`, declares."""
    check_name(f"{path}.name", function.name)
    if function.strict:
        raise unsupported(f"{path}.strict", True, UNCONSTRAINED_ARGUMENTS)
    assert isinstance(raw, dict)
    described = {name: value for name, value in raw.items() if name in _SHOWN and value is not None}
    return Tool(
        name=function.name,
        declaration={"type": "function", "function": described},
        parameters=function.parameters,
    )


def check_name(path: str, name: str) -> None:
    """Raise `InvalidRequest` unless `name`, which stands at `path`, is 1 to 128 letters, digits, _, - or dots."""
    if not 0 < len(name) <= MOST_NAME_CHARS or not TOOL_NAME.fullmatch(name):
        raise InvalidRequest(
            f"{path}: expected 1 to {MOST_NAME_CHARS} letters, digits, _, - or ., got {shown(name)}", param=path
        )


def declared_twice(path: str, name: str) -> InvalidRequest:
    """The refusal of a second tool of one name, whose name stands at `path`."""
    return InvalidRequest(f"{path}: {shown(name)} is declared twice", param=path)


def check_parallel(parallel_tool_calls: bool, tools: Sequence[Tool]) -> None:
    """Raise `Unsupported` where one call at most would have to be enforced."""
    if not parallel_tool_calls and tools:
        raise unsupported("parallel_tool_calls", False, UNLIMITED_CALLS)
