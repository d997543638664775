"""Turns and tools as templates see them.

Every string of a caller is wrapped. It knows the shapes that chat templates share (`tool_calls`, `tool_call_id`, ...),
no template's text and no tokens. Content is always a string: null, missing and empty are the same to the model.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import attrs

from ninfer.conversation import Text, ToolCall, Turn
from ninfer.prompt.control import CallerText, Variables, caller_json, caller_text
from ninfer.prompt.traits import TemplateTraits

Message: TypeAlias = "dict[str | CallerText, Variables]"

FAILED_CALL = "[The tool call failed.]"
"""What the model reads above the result of a call that failed (ANTH-031)."""

_PARAGRAPH = Text("\n\n")


def lowered(turns: Iterable[Turn], traits: TemplateTraits) -> list[Turn]:
    """Developer turns as system turns and several leading system turns as one, where the template needs it."""
    done: list[Turn] = []
    for turn in turns:
        if turn.role == "developer" and not traits.shows_developer:
            turn = attrs.evolve(turn, role="system")
        leading = turn.role == "system" and len(done) == 1 and done[0].role == "system"
        if leading and not traits.shows_second_system:
            done[0] = Turn(role="system", parts=(*done[0].parts, _PARAGRAPH, *turn.parts))
        else:
            done.append(turn)
    return done


def template_messages(turns: Iterable[Turn]) -> list[Variables]:
    """The `messages` of a template."""
    names: dict[str, str] = {}  # call id -> name, of the calls so far
    messages: list[Variables] = []
    for turn in turns:
        names |= {call.id: call.name for call in turn.calls}
        messages.append(_message(turn, names))
    return messages


def _message(turn: Turn, names: Mapping[str, str]) -> Message:
    message: Message = {"role": turn.role, "content": caller_text(_content(turn))}
    if turn.role == "assistant":
        if turn.reasoning is not None:
            message["reasoning_content"] = caller_text(turn.reasoning)
        if turn.calls:
            message["tool_calls"] = [_call(call) for call in turn.calls]
    if turn.role == "tool" and turn.call_id is not None:
        message["tool_call_id"] = caller_text(turn.call_id)
        if turn.call_id in names:
            message["name"] = caller_text(names[turn.call_id])
    return message


def _content(turn: Turn) -> str:
    if turn.role == "tool" and turn.is_error:
        return f"{FAILED_CALL}\n{turn.text}"
    return turn.text


def _call(call: ToolCall) -> Message:
    """Arguments stay a mapping, in the order in which the model wrote them (TMPL-006)."""
    function: Message = {"name": caller_text(call.name), "arguments": caller_json(call.arguments)}
    return {"type": "function", "id": caller_text(call.id), "function": function}
