"""Tools of a Responses request: flat functions, namespaces of functions, and what is left out (RITEM-020 to -026).

The model sees one flat list of names. A function of a namespace gets an identity of its own there, and `ToolTable`
leads back from it to namespace and name. Hosted tools are left out and named (D26). It knows declarations, not calls.

Invariant: identities are unique and depend on the declarations alone, so a replayed conversation renders the same.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

import attrs

from ninfer.conversation import InvalidRequest, Tool, Unsupported
from ninfer.protocols.function_tools import CALLED_BY_THE_MODEL, UNCONSTRAINED_ARGUMENTS, check_name, declared_twice
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.refusal import Refusals, never, one_of, refuse_fields, unsupported
from ninfer.protocols.structure import AnyObject, Array, Text, missing, structure
from ninfer.protocols.values import shown

Origin: TypeAlias = tuple[str | None, str]
"""Namespace (None: none) and name of a function, as the caller knows them."""

_HOSTED = re.compile(
    r"(web_search|web_search_preview)(_\d{4}_\d{2}_\d{2})?|file_search|code_interpreter|image_generation|tool_search",
    re.ASCII,
)
"""Tools that the service itself would run: their declarations are left out, for clients send them unasked."""

_FUNCTION: Refusals = {
    "strict": (one_of(False), UNCONSTRAINED_ARGUMENTS),
    "defer_loading": (one_of(False), "tools are loaded at once"),
    "output_schema": (never, "outputs of tools are not checked"),
}
_OTHERS: Mapping[str, str] = {
    # type -> what this server cannot do
    "mcp": "this server connects to no MCP servers",
    "custom": "free-form tools are not offered here; declare a function with one string parameter",
}


@attrs.frozen(kw_only=True)
class FunctionTool:
    """A function as it is declared, flat."""

    name: Text
    description: Text | None = None
    parameters: AnyObject | None = None


@attrs.frozen(kw_only=True)
class Namespace:
    """A group of functions."""

    name: Text
    description: Text | None = None
    tools: Annotated[tuple[AnyObject, ...], Array()]


@attrs.frozen(kw_only=True)
class ToolTable:
    """The tools of one request."""

    tools: tuple[Tool, ...] = ()
    echoed: tuple[Mapping[str, JSONValue], ...] = ()
    """As the Response object shows them, with every key that strict readers want."""
    ignored: tuple[str, ...] = ()
    """Types of hosted tools that were declared and left out, each once."""
    _identities: Mapping[Origin, str] = attrs.field(factory=dict)
    _origins: Mapping[str, Origin] = attrs.field(factory=dict)

    def identity(self, origin: Origin) -> str:
        """The name under which the model knows a function; also of one that is not declared (any more)."""
        return self._identities.get(origin) or _joined(origin)

    def origin(self, identity: str) -> Origin:
        """Namespace and name of the function that the model calls `identity`."""
        return self._origins.get(identity, (None, identity))


def read_tools(declared: Sequence[Mapping[str, JSONValue]]) -> ToolTable:
    """The table of the `tools` of a body.

    Raises:
        InvalidRequest: a malformed declaration, or two of one name.
        Unsupported: a tool that is neither the caller's own function nor one to leave out.
    """
    found: list[_Declared] = []
    echoed: list[Mapping[str, JSONValue]] = []
    ignored: dict[str, None] = {}
    for at, raw in enumerate(declared):
        path, kind = f"tools[{at}]", raw.get("type")
        if kind == "function":
            found.append(_declared(path, raw, None))
            echoed.append(_echo(raw))
        elif kind == "namespace":
            group = structure(raw, Namespace, at=path)
            check_name(f"{path}.name", group.name)
            found += [_declared(f"{path}.tools[{n}]", one, group.name) for n, one in enumerate(group.tools)]
            echoed.append({"description": "", **raw, "tools": [_echo(one) for one in group.tools]})
        else:
            ignored[_hosted(path, kind)] = None
    identities = _identities(found)
    return ToolTable(
        tools=tuple(_tool(identities[one.origin], one) for one in found),
        echoed=tuple(echoed),
        ignored=tuple(ignored),
        identities=identities,
        origins={identity: origin for origin, identity in identities.items()},
    )


def calls_allowed(choice: object) -> bool:
    """What `tool_choice` says: whether the model may call.

    Raises:
        InvalidRequest: no form of a tool choice.
        Unsupported: it forces a call, or restricts which.
    """
    if choice is None or choice == "auto" or choice == "none":
        return choice != "none"
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind == "required" or (isinstance(choice, dict) and isinstance(kind, str) and kind):
        raise Unsupported(
            f"tool_choice: {shown(kind)} is not supported: calls cannot be forced in this build", param="tool_choice"
        )
    raise InvalidRequest(
        f'tool_choice: expected "auto", "none", "required" or an object with a type, got {shown(choice)}',
        param="tool_choice",
    )


@attrs.frozen
class _Declared:
    path: str
    origin: Origin
    function: FunctionTool
    raw: Mapping[str, JSONValue]


def _declared(path: str, raw: Mapping[str, JSONValue], namespace: str | None) -> _Declared:
    kind = raw.get("type")
    if kind != "function":
        raise unsupported(f"{path}.type", kind, _OTHERS.get(str(kind), "a namespace holds functions alone"))
    refuse_fields(raw, _FUNCTION, at=path)
    callers = raw.get("allowed_callers")
    if isinstance(callers, list) and "direct" not in callers:
        raise unsupported(f"{path}.allowed_callers", callers, CALLED_BY_THE_MODEL)
    function = structure(raw, FunctionTool, at=path)
    check_name(f"{path}.name", function.name)
    return _Declared(path, (namespace, function.name), function, raw)


def _identities(found: Sequence[_Declared]) -> dict[Origin, str]:
    # Plain functions first: their names are their identities, so a namespace's function is the one that gives way.
    identities: dict[Origin, str] = {}
    taken: set[str] = set()
    for one in sorted(found, key=lambda one: one.origin[0] is not None):
        if one.origin in identities:
            raise declared_twice(f"{one.path}.name", one.function.name)
        identity, again = _joined(one.origin), 1
        while identity in taken:
            again += 1
            identity = f"{_joined(one.origin)}_{again}"
        identities[one.origin] = identity
        taken.add(identity)
    return identities


def _joined(origin: Origin) -> str:
    namespace, name = origin
    return name if namespace is None else f"{namespace}__{name}"


def _tool(identity: str, one: _Declared) -> Tool:
    """What the template shows holds the members that describe the function, in the order they came in (TMPL-005)."""
    shown_members = {"name", "description", "parameters"}
    function: dict[str, object] = {
        name: value for name, value in one.raw.items() if name in shown_members and value is not None
    }
    function["name"] = identity
    return Tool(
        name=identity,
        declaration={"type": "function", "function": function},
        parameters=one.function.parameters,
    )


def _echo(raw: Mapping[str, JSONValue]) -> dict[str, JSONValue]:
    return {"description": None, "parameters": None, "strict": None, **raw}


def _hosted(path: str, kind: JSONValue) -> str:
    if kind is None:
        raise missing(f"{path}.type")
    if not isinstance(kind, str):
        raise InvalidRequest(f"{path}.type: expected a string, got {shown(kind)}", code="invalid_type", param=path)
    if not _HOSTED.fullmatch(kind):
        guarantee = _OTHERS.get(kind, "only functions that the caller runs are offered, plain or in a namespace")
        raise unsupported(f"{path}.type", kind, guarantee)
    return kind
