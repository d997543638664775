"""From a Chat Completions body to a `GenerationRequest`.

Refusals by name come first, so that a request for something that is not offered says so whatever else it holds; then
structure, then meaning. It knows Chat's wire names and no other protocol's, and nothing of tokens.
"""

from collections.abc import Mapping
from typing import cast

import attrs

from ninfer.conversation import (
    GenerationRequest,
    InvalidRequest,
    Part,
    Reasoning,
    Role,
    SamplingFields,
    Text,
    ThinkingFields,
    Turn,
    Unsupported,
)
from ninfer.protocols.openai_chat.refused import refuse_unsupported
from ninfer.protocols.openai_chat.wire import ChatBody, WireMessage, WirePart
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.structure import structure
from ninfer.protocols.values import shown


@attrs.frozen(kw_only=True)
class ChatCall:
    """A decoded request and what only the answer's form depends on."""

    model: str
    stream: bool
    include_usage: bool
    request: GenerationRequest


def decode(body: JSONValue) -> ChatCall:
    """What `body` asks for.

    Raises:
        InvalidRequest: malformed or contradictory; `param` is the path.
        Unsupported: understood and not offered.
    """
    if isinstance(body, dict):
        refuse_unsupported(body)
    wire = structure(body, ChatBody)
    return ChatCall(
        model=wire.model,
        stream=wire.stream,
        include_usage=wire.stream_options.include_usage,
        request=GenerationRequest(
            turns=tuple(_turn(f"messages[{at}]", message) for at, message in enumerate(wire.messages)),
            sampling=SamplingFields(
                temperature=wire.temperature,
                top_k=wire.top_k,
                top_p=wire.top_p,
                min_p=wire.min_p,
                presence_penalty=wire.presence_penalty,
                frequency_penalty=wire.frequency_penalty,
                seed=wire.seed,
            ),
            thinking=_thinking(wire, cast(Mapping[str, JSONValue], body)),
            max_output_tokens=_limit(wire),
            stop=_stop(wire),
        ),
    )


def _limit(wire: ChatBody) -> int | None:
    old, new = wire.max_tokens, wire.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise InvalidRequest(
            f"max_tokens: {old} contradicts max_completion_tokens: {new}; give one of them", param="max_tokens"
        )
    return old if new is None else new


def _stop(wire: ChatBody) -> tuple[str, ...]:
    if not isinstance(wire.stop, str):
        return wire.stop
    if not wire.stop:
        raise InvalidRequest('stop: expected a non-empty string, got ""', param="stop")
    return (wire.stop,)


def _thinking(wire: ChatBody, body: Mapping[str, JSONValue]) -> ThinkingFields:
    enabled = _agreed("enable_thinking", wire.enable_thinking, wire.chat_template_kwargs.enable_thinking)
    preserve = _agreed("preserve_thinking", wire.preserve_thinking, wire.chat_template_kwargs.preserve_thinking)
    if body.get("reasoning_effort") == "none":
        if enabled:
            raise _conflict("reasoning_effort", '"none"', "enable_thinking", "true")
        enabled = False
    return ThinkingFields(enabled=enabled, preserve=preserve)


def _agreed(name: str, top: bool | None, in_kwargs: bool | None) -> bool | None:
    if top is not None and in_kwargs is not None and top != in_kwargs:
        raise _conflict(name, shown(top), f"chat_template_kwargs.{name}", shown(in_kwargs))
    return in_kwargs if top is None else top


def _conflict(path: str, value: str, other_path: str, other: str) -> InvalidRequest:
    return InvalidRequest(
        f"{path}: {value} contradicts {other_path}: {other}", code="conflicting_template_option", param=path
    )


def _turn(path: str, message: WireMessage) -> Turn:
    if message.name and message.role not in ("tool", "function"):
        raise Unsupported(
            f"{path}.name: {shown(message.name)} is not supported: the template cannot carry who takes part",
            param=f"{path}.name",
        )
    parts: list[Part] = []
    if message.role == "assistant":
        reasoning = _reasoning(path, message)
        if reasoning is not None:
            parts.append(Reasoning(reasoning))
    if isinstance(message.content, str):
        if message.content:
            parts.append(Text(message.content))
    else:
        parts += [_part(f"{path}.content[{at}]", message.role, part) for at, part in enumerate(message.content)]
    return Turn(role="tool" if message.role == "function" else cast(Role, message.role), parts=tuple(parts))


def _reasoning(path: str, message: WireMessage) -> str | None:
    one, other = message.reasoning_content, message.reasoning
    if one is not None and other is not None and one != other:
        raise InvalidRequest(
            f"{path}.reasoning: contradicts reasoning_content of the same message", param=f"{path}.reasoning"
        )
    return other if one is None else one


def _part(path: str, role: str, part: WirePart) -> Text:
    if part.type == "text":
        return Text(_member(path, "text", part.text))
    if part.type == "refusal" and role == "assistant":
        return Text(_member(path, "refusal", part.refusal))
    raise InvalidRequest(
        f"{path}.type: {shown(part.type)} is no part of a message with the role {role}", param=f"{path}.type"
    )


def _member(path: str, name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequest(f"{path}.{name}: is required", code="missing_required_parameter", param=f"{path}.{name}")
    return value
