"""From Chat's messages to turns: contents, calls and their results, legacy function calls, cache marks.

It knows messages, one after the other, and nothing of the request around them. Invariants: nothing of a message that
the model could have seen is dropped, what cannot be carried over is refused by its path; every result stands behind the
turn of its call, in the order of the calls.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from ninfer.conversation import CachePoint, InvalidRequest, Part, Reasoning, Role, Text, ToolCall, Turn, Unsupported
from ninfer.protocols.call_arguments import read_arguments
from ninfer.protocols.call_results import ResultMatching
from ninfer.protocols.openai_chat.refused import refused_part
from ninfer.protocols.openai_chat.tools import FREE_FORM_PARAMETER
from ninfer.protocols.openai_chat.wire import CalledFunction, WireCall, WireMessage, WirePart
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.structure import missing, structure
from ninfer.protocols.values import shown


def turns_of(messages: Sequence[WireMessage]) -> tuple[Turn, ...]:
    """The turns that `messages` make, one for one; results come in the order of their calls.

    Raises:
        InvalidRequest: malformed, or a member that the role cannot have; code invalid_tool_history where calls and
            results do not belong together.
        Unsupported: a part or a name that is not carried over (media: vision_disabled).
    """
    turns: list[Turn] = []
    matching = ResultMatching(may_lead=True)
    legacy: ToolCall | None = None
    for at, message in enumerate(messages):
        path = f"messages[{at}]"
        if message.role == "tool":
            matching.result(*_result(path, message, matching))
            continue
        if message.role == "function":
            matching.result(*_legacy_result(path, message, legacy, matching))
            continue
        turns += matching.end()
        legacy = None
        if message.role == "assistant":
            turns.append(_assistant(path, message, matching))
            legacy = turns[-1].calls[-1] if message.function_call is not None else None
        else:
            _check_nameless(path, message)
            turns.append(Turn(role=cast(Role, message.role), parts=_needed_content(path, message)))
        if message.role in ("user", "assistant"):
            matching.speak()
    if messages[-1].role != "assistant":  # a last turn of calls is one that cannot be continued, which says more
        turns += matching.end()
    return tuple(turns)


def _assistant(path: str, message: WireMessage, matching: ResultMatching) -> Turn:
    _check_nameless(path, message)
    parts: list[Part] = []
    reasoning = _reasoning(path, message)
    if reasoning is not None:
        parts.append(Reasoning(reasoning))
    silent = not (reasoning or message.refusal or message.tool_calls or message.function_call)
    parts += _needed_content(path, message) if silent else _content(path, message)
    if message.refusal:
        parts.append(Text(message.refusal))
    for at, wire in enumerate(message.tool_calls):
        call = _call(f"{path}.tool_calls[{at}]", wire)
        matching.call(call.id, f"{path}.tool_calls[{at}].id")
        parts.append(call)
    if message.function_call is not None:
        call = _function_call(f"{path}.function_call", f"call_of_{path}", message.function_call)
        matching.call(call.id, f"{path}.function_call")
        parts.append(call)
    return Turn(role="assistant", parts=tuple(parts))


def _result(path: str, message: WireMessage, matching: ResultMatching) -> tuple[Turn, str]:
    """The turn of a tool message, and the place of its id."""
    place = f"{path}.tool_call_id"
    if message.tool_call_id is None and matching.needs_ids:
        raise missing(place)
    return Turn(role="tool", parts=_needed_content(path, message), call_id=message.tool_call_id), place


def _legacy_result(
    path: str, message: WireMessage, call: ToolCall | None, matching: ResultMatching
) -> tuple[Turn, str]:
    """The same of a legacy result, which has no id: it answers the call before it, and may be null."""
    place = f"{path}.name"
    if (call is None or message.name not in (None, call.name)) and matching.needs_ids:
        raise InvalidRequest(
            f"{place}: {shown(message.name)} is no function that the turn before has called",
            code="invalid_tool_history",
            param=place,
        )
    return Turn(role="tool", parts=_content(path, message), call_id=None if call is None else call.id), place


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
    arguments = read_arguments(function.arguments, f"{path}.arguments")
    return ToolCall(id=call_id, name=function.name, arguments=arguments)


def _needed_content(path: str, message: WireMessage) -> tuple[Part, ...]:
    """The content of a message that says nothing without it. An empty one stays an empty turn (CHAT-005)."""
    if message.content is None:
        raise missing(f"{path}.content")
    return _content(path, message)


def _content(path: str, message: WireMessage) -> tuple[Part, ...]:
    if isinstance(message.content, str):
        return (Text(message.content),) if message.content else ()
    parts: list[Part] = []
    for at, raw in enumerate(message.content or ()):
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
