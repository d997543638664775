"""Turns as templates see them, with the places that are to be found again in the rendering.

Every string of a caller is wrapped. It knows the shapes that chat templates share (`tool_calls`, `tool_call_id`, ...),
no template's text and no tokens. Content is always a string: null, missing and empty are the same to the model.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs

from ninfer.conversation import CachePoint, Text, ToolCall, Turn, well_formed
from ninfer.prompt.caller import CallerText, Mark, Variables, caller_json, caller_text
from ninfer.prompt.traits import TemplateTraits

Message: TypeAlias = "dict[str | CallerText, Variables]"

FAILED_CALL = "[The tool call failed.]"
"""What the model reads above the result of a call that failed (ANTH-031)."""

FIRST_TURN = -1
"""Key of the mark at the beginning of the first turn that is neither the system's nor the developer's."""

_PARAGRAPH = Text("\n\n")


@attrs.frozen(kw_only=True)
class Messages:
    """The `messages` of a template, and what their marks mean."""

    all: list[Variables]
    asked: tuple[int, ...]
    """Keys of the marks in contents for which the caller has asked."""
    behind_calls: tuple[int, ...]
    """Places in `all` of the messages behind whose last call the caller has put a mark."""


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


def template_messages(turns: Sequence[Turn]) -> Messages:
    """The turns as a template's `messages`."""
    names: dict[str, str] = {}  # call id -> name, of the calls so far
    first = next((at for at, turn in enumerate(turns) if turn.role not in ("system", "developer")), None)
    messages: list[Variables] = []
    behind_calls: list[int] = []
    keys = 0
    for at, turn in enumerate(turns):
        names |= {call.id: call.name for call in turn.calls}
        content = marked_content(turn, first_key=keys)
        keys += len(content.marks)
        if at == first:
            indent = len(content.text) - len(content.text.lstrip())
            marks = (*content.marks, Mark(at=indent, key=FIRST_TURN))
            content = attrs.evolve(content, marks=tuple(sorted(marks, key=lambda mark: mark.at)))
        messages.append(_message(turn, content, names))
        if _ends_in_marked_call(turn):
            behind_calls.append(at)
    return Messages(all=messages, asked=tuple(range(keys)), behind_calls=tuple(behind_calls))


def marked_content(turn: Turn, *, first_key: int = 0) -> CallerText:
    """The content of the turn with a mark for each cache point in it, numbered from `first_key`."""
    text = f"{FAILED_CALL}\n" if turn.role == "tool" and turn.is_error else ""
    places: list[int] = []
    for part in turn.parts:
        if isinstance(part, Text):
            text += part.text
        elif isinstance(part, ToolCall):
            break  # what stands behind a call is not in the content
        elif isinstance(part, CachePoint):
            places.append(len(well_formed(text)))
    # Parts behind the first call: text belongs to the content all the same (TMPL-021 leaves no other place for it).
    rest = turn.parts[next((at for at, part in enumerate(turn.parts) if isinstance(part, ToolCall)), len(turn.parts)) :]
    text += "".join(part.text for part in rest if isinstance(part, Text))
    return CallerText(well_formed(text), tuple(Mark(at=at, key=first_key + n) for n, at in enumerate(places)))


def _ends_in_marked_call(turn: Turn) -> bool:
    """Whether a cache point stands behind the last call. One between two calls cannot be told from the rendering."""
    last = max((at for at, part in enumerate(turn.parts) if isinstance(part, ToolCall)), default=None)
    return last is not None and any(isinstance(part, CachePoint) for part in turn.parts[last + 1 :])


def _message(turn: Turn, content: CallerText, names: Mapping[str, str]) -> Message:
    message: Message = {"role": turn.role, "content": content}
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


def _call(call: ToolCall) -> Message:
    """Arguments stay a mapping, in the order in which the model wrote them (TMPL-006)."""
    function: Message = {"name": caller_text(call.name), "arguments": caller_json(call.arguments)}
    return {"type": "function", "id": caller_text(call.id), "function": function}
