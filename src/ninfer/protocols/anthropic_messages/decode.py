"""From a Messages body to a `GenerationRequest`, and from a token count's body to the same.

Refusals by name come first, so that a request for something that is not offered says so whatever else it holds; then
structure, then meaning. It knows the wire names of Messages and no other protocol's, and nothing of tokens.
"""

from collections.abc import Mapping
from typing import cast

import attrs

from ninfer.conversation import GenerationRequest, InvalidRequest, SamplingFields, ThinkingFields, Turn
from ninfer.protocols.anthropic_messages.breakpoints import Breakpoints
from ninfer.protocols.anthropic_messages.history import HistoryReader
from ninfer.protocols.anthropic_messages.refused import refuse_unsupported
from ninfer.protocols.anthropic_messages.tools import lower_tools, referenced_tools
from ninfer.protocols.anthropic_messages.wire import MessagesBody, PromptBody, Thinking
from ninfer.protocols.places import Places, check_continuation
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.structure import missing, structure
from ninfer.protocols.template_options import Said, template_options
from ninfer.protocols.values import shown

LEAST_BUDGET_TOKENS = 1024
PLACES = Places(conversation="messages", last_turn="messages")
"""What a count and a request have in common of them."""


@attrs.frozen(kw_only=True)
class MessagesCall:
    """A decoded request and what only the answer's form depends on."""

    model: str
    """The caller's own label, which the answer repeats (ANTH-046)."""
    stream: bool
    show_thinking: bool
    places: Places
    request: GenerationRequest


def decode(body: JSONValue) -> MessagesCall:
    """What `body` asks for.

    Raises:
        InvalidRequest: malformed or contradictory; `param` is the path.
        Unsupported: understood and not offered.
    """
    if isinstance(body, dict):
        refuse_unsupported(body)
    wire = structure(body, MessagesBody)
    request = attrs.evolve(
        _prompt_request(wire),
        sampling=SamplingFields(temperature=wire.temperature, top_k=wire.top_k, top_p=wire.top_p),
        max_output_tokens=wire.max_tokens,
        stop=wire.stop_sequences,
    )
    return MessagesCall(
        model=wire.model,
        stream=wire.stream,
        show_thinking=wire.thinking is None or wire.thinking.display != "omitted",
        places=attrs.evolve(PLACES, output_limit=_limit_name(wire)),
        request=request,
    )


def _limit_name(wire: MessagesBody) -> str | None:
    if wire.thinking is not None and wire.thinking.budget_tokens is not None:
        return "thinking.budget_tokens"
    return None if wire.max_tokens is None else "max_tokens"


def decode_count(body: JSONValue) -> GenerationRequest:
    """The request whose prompt `body` wants counted; what concerns the output alone is not even looked at.

    Raises:
        InvalidRequest: malformed or contradictory; `param` is the path.
        Unsupported: understood and not offered.
    """
    if isinstance(body, dict):
        refuse_unsupported(body)
    return _prompt_request(structure(body, PromptBody))


def _prompt_request(wire: PromptBody) -> GenerationRequest:
    """All that decides the prompt. Marks are counted in the order of the prompt: tools, system, messages."""
    marks = Breakpoints()
    tools = lower_tools(wire.tools, referenced_tools(wire.messages), marks)
    reader = HistoryReader(marks)
    turns = (*reader.system(wire.system), *reader.turns(wire.messages))
    thinking, kwargs = _options(wire)
    if turns[-1].role == "assistant":
        if thinking.enabled is None:
            thinking = attrs.evolve(thinking, enabled=False)  # what an omitted `thinking` means in this API (D8)
        _check_continuation(wire, turns[-1], thinking)
    last = attrs.evolve(turns[-1], parts=(*turns[-1].parts, *marks.mark_end(wire.cache_control)))
    return GenerationRequest(
        turns=(*turns[:-1], last),
        thinking=thinking,
        tools=tools,
        calls_allowed=wire.tool_choice is None or wire.tool_choice.type != "none",
        template_kwargs=kwargs,
    )


def _options(wire: PromptBody) -> tuple[ThinkingFields, Mapping[str, object]]:
    """What goes to the template: about thinking, and the caller's further variables."""
    switch, effort = wire.thinking, wire.output_config.effort
    said: list[Said] = []
    if switch is not None:
        said.append(Said("thinking.type", "enable_thinking", switch.type != "disabled"))
    if wire.preserve_thinking is not None:
        said.append(Said("preserve_thinking", "preserve_thinking", wire.preserve_thinking))
    # In this API an effort is about the whole answer, so it does not contradict thinking that is switched off.
    beside_thinking = switch is None or switch.type != "disabled"
    if effort is not None and beside_thinking:
        said.append(Said("output_config.effort", "reasoning_effort", effort))
    options = template_options(cast(JSONValue, wire.chat_template_kwargs), said)
    thinking = attrs.evolve(options.thinking, budget_tokens=_budget_tokens(switch))
    return (thinking if beside_thinking else attrs.evolve(thinking, effort=effort)), options.kwargs


def _budget_tokens(thinking: Thinking | None) -> int | None:
    if thinking is None or thinking.type != "enabled":
        return None
    path, budget = "thinking.budget_tokens", thinking.budget_tokens
    if budget is None:
        raise missing(path)
    if budget < LEAST_BUDGET_TOKENS:
        raise InvalidRequest(
            f"{path}: expected an integer of at least {LEAST_BUDGET_TOKENS}, got {shown(budget)}", param=path
        )
    return budget


def _check_continuation(wire: PromptBody, turn: Turn, thinking: ThinkingFields) -> None:
    """Refuse a final assistant turn that cannot be continued."""
    path = f"messages[{len(wire.messages) - 1}]"
    if thinking.enabled:
        raise InvalidRequest(
            f"{path}: the assistant's text cannot be continued while thinking is switched on",
            code="invalid_prompt",
            param=path,
        )
    check_continuation(turn, path)
