"""From Chat's messages to turns: contents, calls and their results, legacy function calls, cache marks.

It knows messages, one after the other, and nothing of the request around them. Invariant: nothing of a message that
the model could have seen is dropped; what cannot be carried over is refused by its path.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from ninfer.conversation import CachePoint, InvalidRequest, Part, Reasoning, Role, Text, ToolCall, Turn, Unsupported
from ninfer.protocols.call_arguments import read_arguments
from ninfer.protocols.openai_chat.refused import refused_part
from ninfer.protocols.openai_chat.tools import FREE_FORM_PARAMETER
from ninfer.protocols.openai_chat.wire import CalledFunction, WireCall, WireMessage, WirePart
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.structure import missing, structure
from ninfer.protocols.values import shown


def turns_of(messages: Sequence[WireMessage]) -> tuple[Turn, ...]:
    """The turns that `messages` make, in their order, one for one.

    Raises:
        InvalidRequest: malformed, or a member that the role cannot have.
        Unsupported: a part or a name that is not carried over (media: vision_disabled).
    """
    turns: list[Turn] = []
    legacy_call: str | None = None
    for at, message in enumerate(messages):
        path = f"messages[{at}]"
        if message.role == "assistant":
            turns.append(_assistant(path, message))
            legacy_call = turns[-1].calls[-1].id if message.function_call is not None else None
        elif message.role in ("tool", "function"):
            # A legacy result has no id: it answers the call before it.
            call_id = legacy_call if message.role == "function" else message.tool_call_id
            turns.append(Turn(role="tool", parts=_content(path, message), call_id=call_id))
        else:
            _check_nameless(path, message)
            turns.append(Turn(role=cast(Role, message.role), parts=_content(path, message)))
    return tuple(turns)


def _assistant(path: str, message: WireMessage) -> Turn:
    _check_nameless(path, message)
    parts: list[Part] = []
    reasoning = _reasoning(path, message)
    if reasoning is not None:
        parts.append(Reasoning(reasoning))
    parts += _content(path, message)
    if message.refusal:
        parts.append(Text(message.refusal))
    parts += [_call(f"{path}.tool_calls[{at}]", call) for at, call in enumerate(message.tool_calls)]
    if message.function_call is not None:
        parts.append(_function_call(f"{path}.function_call", f"call_of_{path}", message.function_call))
    return Turn(role="assistant", parts=tuple(parts))


def _check_nameless(path: str, message: WireMessage) -> None:
    if message.name:
        raise Unsupported(
            f"{path}.name: {shown(message.name)} is not supported: the template cannot carry who takes part",
            param=f"{path}.name",
        )


def _reasoning(path: str, message: WireMessage) -> str | None:
    one, other = message.reasoning_content, message.reasoning
    if one is not None and other is not None and one != other:
        raise InvalidRequest(
            f"{path}.reasoning: contradicts reasoning_content of the same message", param=f"{path}.reasoning"
        )
    return other if one is None else one


def _call(path: str, call: WireCall) -> ToolCall:
    if call.type == "custom":
        if call.custom is None:
            raise missing(f"{path}.custom")
        return ToolCall(id=call.id, name=call.custom.name, arguments={FREE_FORM_PARAMETER: call.custom.input})
    if call.function is None:
        raise missing(f"{path}.function")
    return _function_call(f"{path}.function", call.id, call.function)


def _function_call(path: str, call_id: str, function: CalledFunction) -> ToolCall:
    # Clients write no arguments as an empty string.
    arguments = read_arguments(function.arguments, f"{path}.arguments") if function.arguments.strip() else {}
    return ToolCall(id=call_id, name=function.name, arguments=arguments)


def _content(path: str, message: WireMessage) -> tuple[Part, ...]:
    if isinstance(message.content, str):
        return (Text(message.content),) if message.content else ()
    parts: list[Part] = []
    for at, raw in enumerate(message.content):
        parts.append(_text(f"{path}.content[{at}]", message.role, raw))
        if _marks(raw.get("prompt_cache_breakpoint")):
            parts.append(CachePoint())
    return tuple(parts)


def _text(path: str, role: str, raw: Mapping[str, JSONValue]) -> Text:
    part = structure(raw, WirePart, at=path)
    if part.type == "text":
        return Text(_member(path, "text", part.text))
    if part.type == "refusal" and role == "assistant":
        return Text(_member(path, "refusal", part.refusal))
    raise refused_part(path, role, part.type)


def _marks(breakpoint_: JSONValue) -> bool:
    """Cache hints never fail a request: what is no mark is none (CHAT-032)."""
    return isinstance(breakpoint_, dict) and breakpoint_.get("mode") == "explicit"


def _member(path: str, name: str, value: str | None) -> str:
    if value is None:
        raise missing(f"{path}.{name}")
    return value
