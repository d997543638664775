"""What a Messages request may name but not get, by field, block and tool (D10, D11, D40, D44).

What is in no table here and in no wire type is advisory or unknown and is ignored: metadata, service_tier, speed,
inference_geo, context_management, betas, diagnostics (ANTH-045). It knows names and reasons, no meaning.
"""

from collections.abc import Mapping

from ninfer.conversation import InvalidRequest, RequestError
from ninfer.protocols.function_tools import CALLED_BY_THE_MODEL, UNCONSTRAINED_ARGUMENTS, UNLIMITED_CALLS
from ninfer.protocols.other_servers import OTHER_SERVERS
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.refusal import (
    CONSTRAINED_ELSEWHERE,
    OTHER_PROTOCOL,
    UNCONSTRAINED,
    Refusals,
    empty,
    needs_vision,
    never,
    nothing,
    one_of,
    plain_text,
    refuse_fields,
    refuse_guided,
    unsupported,
)
from ninfer.protocols.structure import missing
from ninfer.protocols.values import shown

_NO_MCP = "this server connects to no MCP servers"
_NO_PENALTIES = "a request of Messages sets no penalties; --presence-penalty and --frequency-penalty set them for all"


_FIELDS: Refusals = {
    **OTHER_SERVERS,
    "enable_thinking": (never, f"{OTHER_PROTOCOL}; Messages has thinking"),
    "frequency_penalty": (one_of(0), _NO_PENALTIES),
    "input": (nothing, f"{OTHER_PROTOCOL}; Messages has messages"),
    "instructions": (nothing, f"{OTHER_PROTOCOL}; Messages has system"),
    "logit_bias": (nothing, "logits are not biased"),
    "logprobs": (one_of(False), "log probabilities are not computed"),
    "max_completion_tokens": (never, f"{OTHER_PROTOCOL}; Messages has max_tokens"),
    "max_output_tokens": (never, f"{OTHER_PROTOCOL}; Messages has max_tokens"),
    "min_p": (one_of(0), "the sampler of Messages has temperature, top_k and top_p"),
    "n": (one_of(1), "one message is generated for a request"),
    "parallel_tool_calls": (one_of(True), f"{OTHER_PROTOCOL}; Messages has tool_choice.disable_parallel_tool_use"),
    "presence_penalty": (one_of(0), _NO_PENALTIES),
    "reasoning": (nothing, f"{OTHER_PROTOCOL}; Messages has thinking and output_config.effort"),
    "reasoning_effort": (never, f"{OTHER_PROTOCOL}; Messages has output_config.effort"),
    "response_format": (plain_text, f"{OTHER_PROTOCOL}; Messages has output_config.format"),
    "seed": (never, "a request of Messages cannot choose its seed; --seed sets it for all"),
    "stop": (nothing, f"{OTHER_PROTOCOL}; Messages has stop_sequences"),
    "structured_outputs": (never, UNCONSTRAINED),
    "tool_constraints": (one_of("basic", "auto"), "it is one of basic and auto"),
    "output_format": (never, "output is constrained through output_config.format"),
    "grammar": (never, CONSTRAINED_ELSEWHERE),
    "mcp_servers": (empty, _NO_MCP),
    "container": (never, "code is executed in no container"),
    "chat_template": (never, "the template is fixed when the server starts"),
}
_OUTPUT_CONFIG: Refusals = {"format": (never, UNCONSTRAINED)}
_TOOL_CHOICE: Refusals = {
    "type": (one_of("auto", "none"), "calls cannot be forced in this build"),
    "disable_parallel_tool_use": (one_of(False), UNLIMITED_CALLS),
}
_TOOL: Refusals = {
    "strict": (one_of(False), UNCONSTRAINED_ARGUMENTS),
}
_TOOL_CHOICES = ("auto", "none", "any", "tool")

_BLOCKS: Mapping[str, str] = {
    # block type -> what this server cannot do
    "document": "documents are not read",
    "search_result": "search results are not read",
    "container_upload": "code is executed in no container",
    "server_tool_use": "tools are run by the caller, never by this server",
    "mcp_tool_use": _NO_MCP,
    "mcp_tool_result": _NO_MCP,
    "mcp_tool_listing": _NO_MCP,
    "compaction": "conversations are not compacted",
    "fallback": "there is no other model to fall back on",
    "tool_addition": "tools are declared in the request's own list",
    "tool_removal": "tools are declared in the request's own list",
}
_SERVER_RESULT = "results of tools that a service ran itself are not taken over"


def refuse_unsupported(body: Mapping[str, JSONValue]) -> None:
    """Raise `Unsupported` for the first top-level field that asks for what is not offered."""
    refuse_guided(body)
    refuse_fields(body, _FIELDS)
    for name, fields in (("output_config", _OUTPUT_CONFIG), ("tool_choice", _TOOL_CHOICE)):
        members = body.get(name)
        # What is no tool choice at all is the wire type's to refuse.
        if isinstance(members, dict) and (name != "tool_choice" or members.get("type") in _TOOL_CHOICES):
            refuse_fields(members, fields, at=name)


def refuse_tool(path: str, tool: Mapping[str, JSONValue]) -> None:
    """Raise `Unsupported` for a tool that is not the caller's own, or that asks for what is not offered."""
    kind = tool.get("type")
    if kind is not None and kind != "custom":
        raise unsupported(f"{path}.type", kind, "only tools that the caller defines and runs are offered")
    callers = tool.get("allowed_callers")
    if isinstance(callers, list) and "direct" not in callers:
        raise unsupported(f"{path}.allowed_callers", callers, CALLED_BY_THE_MODEL)
    refuse_fields(tool, _TOOL, at=path)


def refused_block(path: str, kind: JSONValue, where: str) -> RequestError:
    """Why a block of the type `kind` cannot stand at `path`, which is inside `where` ("a user message")."""
    if kind in ("image", "video"):
        return needs_vision(path, str(kind), "block")
    if isinstance(kind, str) and kind in _BLOCKS:
        return unsupported(path, kind, _BLOCKS[kind])
    if isinstance(kind, str) and kind.endswith("_tool_result"):
        return unsupported(path, kind, _SERVER_RESULT)
    if kind is None:
        return missing(f"{path}.type")
    return InvalidRequest(f"{path}.type: {shown(kind)} is no block of {where}", param=f"{path}.type")
