"""From a Chat Completions body to a `GenerationRequest`.

Refusals by name come first, so that a request for something that is not offered says so whatever else it holds; then
structure, then meaning. It knows Chat's wire names and no other protocol's, and nothing of tokens.
"""

from collections.abc import Mapping
from typing import cast

import attrs

from ninfer.conversation import GenerationRequest, InvalidRequest
from ninfer.protocols.cache_points import place_cache_points
from ninfer.protocols.function_tools import check_parallel
from ninfer.protocols.openai_chat.encode import Shape
from ninfer.protocols.openai_chat.history import turns_of
from ninfer.protocols.openai_chat.refused import refuse_unsupported
from ninfer.protocols.openai_chat.tools import calls_allowed, read_tools
from ninfer.protocols.openai_chat.wire import SERVER_EFFORTS, ChatBody
from ninfer.protocols.places import Places, check_continuation
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.structure import structure
from ninfer.protocols.template_options import Said, TemplateOptions, template_options


@attrs.frozen(kw_only=True)
class ChatCall:
    """A decoded request and what only the answer's form depends on."""

    model: str
    stream: bool
    shape: Shape
    places: Places
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
    members = cast(Mapping[str, JSONValue], body)
    tools = read_tools(wire.tools)
    allowed = calls_allowed(members.get("tool_choice"))
    check_parallel(wire.parallel_tool_calls, tools)
    options = _options(wire)
    turns = turns_of(wire.messages)
    last = f"messages[{len(turns) - 1}]"
    if turns[-1].role == "assistant":
        check_continuation(turns[-1], last)
    return ChatCall(
        model=wire.model,
        stream=wire.stream,
        places=Places(conversation="messages", last_turn=last, output_limit=_limit_name(wire)),
        shape=Shape(
            include_usage=wire.stream_options.include_usage,
            timings_per_token=wire.timings_per_token,
            progress=wire.return_progress,
            free_form=frozenset(tool.name for tool in tools if tool.free_form),
        ),
        request=GenerationRequest(
            turns=place_cache_points(turns, implicit=_implicit_write(members.get("prompt_cache_options"))),
            sampling=wire.sampling(),
            thinking=options.thinking,
            template_kwargs=options.kwargs,
            tools=tools,
            calls_allowed=allowed,
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


def _limit_name(wire: ChatBody) -> str | None:
    names = ("max_completion_tokens", "max_tokens")
    return next((name for name in names if getattr(wire, name) is not None), None)


def _stop(wire: ChatBody) -> tuple[str, ...]:
    if not isinstance(wire.stop, str):
        return wire.stop
    if not wire.stop:
        raise InvalidRequest('stop: expected a non-empty string, got ""', param="stop")
    return (wire.stop,)


def _options(wire: ChatBody) -> TemplateOptions:
    typed: list[Said] = []
    if wire.enable_thinking is not None:
        typed.append(Said("enable_thinking", "enable_thinking", wire.enable_thinking))
    if wire.preserve_thinking is not None:
        typed.append(Said("preserve_thinking", "preserve_thinking", wire.preserve_thinking))
    if wire.reasoning_effort is not None and wire.reasoning_effort not in SERVER_EFFORTS:
        typed.append(Said("reasoning_effort", "reasoning_effort", wire.reasoning_effort))
    return template_options(cast(JSONValue, wire.chat_template_kwargs), typed)


def _implicit_write(options: JSONValue) -> bool:
    """Whether nobody has switched the automatic cache point off (CACHE-HINT-003); hints never fail a request."""
    return not (isinstance(options, dict) and options.get("mode") == "explicit")
