"""From the messages of a request to turns: joined, checked, and in the order that the model's template has.

Consecutive messages of the user, and of the assistant, are one turn (ANTH-002); system messages stay where they are
(ANTH-003). Results lead the user turn after the calls, one for each call, and become tool turns in the order of the
calls (ANTH-032, ANTH-033). Within an assistant turn reasoning comes first, then text, then calls; no text is lost.
Invariant: the text of the turns is the text of the blocks, whether a content is a string or an array (D36).
"""

from collections.abc import Iterator, Mapping, Sequence

import attrs

from ninfer.conversation import CachePoint, InvalidRequest, Part, Reasoning, Role, Text, ToolCall, Turn
from ninfer.protocols.anthropic_messages.breakpoints import Breakpoints
from ninfer.protocols.anthropic_messages.refused import refused_block
from ninfer.protocols.anthropic_messages.signatures import hidden_reasoning
from ninfer.protocols.anthropic_messages.wire import (
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    WireMessage,
)
from ninfer.protocols.call_arguments import read_arguments
from ninfer.protocols.call_results import ResultMatching
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.structure import structure

BILLING = "x-anthropic-billing-header:"
"""What the first block of a system array begins with that is meant for the bill, not for the model (ANTH-008)."""


@attrs.frozen
class _Block:
    """A content block and where it stands."""

    path: str
    members: Mapping[str, JSONValue]

    @property
    def kind(self) -> JSONValue:
        """Its `type`."""
        return self.members.get("type")


@attrs.frozen
class _Speech:
    """Consecutive messages of one role."""

    role: Role
    path: str
    """Of the first message."""
    blocks: list[_Block]


class HistoryReader:
    """Reads one request's system text and messages."""

    def __init__(self, marks: Breakpoints) -> None:
        """`marks` has seen the tools already: they come before the system text."""
        self._marks = marks
        self._matching = ResultMatching(may_lead=True)

    def system(self, content: str | Sequence[Mapping[str, JSONValue]]) -> tuple[Turn, ...]:
        """The turn of the top-level system text; none where there is no text."""
        blocks = list(_blocks("system", content))
        if blocks and not isinstance(content, str) and _is_billing(blocks[0]):
            del blocks[0]
        turn = self._system_turn(blocks)
        return (turn,) if turn.text else ()

    def turns(self, messages: Sequence[WireMessage]) -> tuple[Turn, ...]:
        """The turns of `messages`.

        Raises:
            InvalidRequest: malformed; code invalid_tool_history where calls and results do not belong together.
            Unsupported: a block of a kind that is not read here.
        """
        turns: list[Turn] = []
        for speech in _speeches(messages):
            if speech.role == "system":
                turns.append(self._system_turn(speech.blocks))
            elif speech.role == "assistant":
                turns.append(self._assistant_turn(speech))
            else:
                turns += self._user_turns(speech)
            if speech.role != "system":
                self._matching.speak()
        self._matching.end()
        return tuple(turns)

    def _system_turn(self, blocks: Sequence[_Block]) -> Turn:
        return Turn(
            role="system", parts=tuple(part for block in blocks for part in self._text(block, "a system message"))
        )

    def _assistant_turn(self, speech: _Speech) -> Turn:
        self._matching.end()
        reasoning: list[Part] = []
        texts: list[Part] = []
        calls: list[Part] = []
        for block in speech.blocks:
            if block.kind in ("thinking", "redacted_thinking"):
                reasoning += _reasoning(block)
            elif block.kind == "tool_use":
                calls += self._call(block)
            else:
                texts += self._text(block, "an assistant message")
        return Turn(role="assistant", parts=(*reasoning, *texts, *calls))

    def _call(self, block: _Block) -> tuple[Part, ...]:
        use = structure(block.members, ToolUseBlock, at=block.path)
        self._matching.call(use.id, f"{block.path}.id")
        self._marks.piece()
        call = ToolCall(id=use.id, name=use.name, arguments=read_arguments(use.input, f"{block.path}.input"))
        return (call, *self._marks.mark(block.path, use.cache_control))

    def _user_turns(self, speech: _Speech) -> list[Turn]:
        parts: list[Part] = []
        for block in speech.blocks:
            if block.kind != "tool_result":
                parts += self._text(block, "a user message")
            elif any(isinstance(part, Text) for part in parts):
                raise _invalid_history(block.path, "tool results come before everything else in their user turn")
            else:
                self._matching.result(self._result(block), f"{block.path}.tool_use_id")
        ordered = self._matching.end(speech.path)
        if ordered and not any(isinstance(part, Text) for part in parts):
            ordered[-1] = attrs.evolve(ordered[-1], parts=(*ordered[-1].parts, *parts))
            return ordered
        return [*ordered, Turn(role="user", parts=tuple(parts))]

    def _result(self, block: _Block) -> Turn:
        result = structure(block.members, ToolResultBlock, at=block.path)
        parts: list[Part] = []
        for inner in _blocks(f"{block.path}.content", result.content):
            if inner.kind == "tool_reference":
                reference = structure(inner.members, ToolReferenceBlock, at=inner.path)
                self._marks.piece()
                parts += [
                    Text(f"Tool {reference.tool_name} is available.\n"),
                    *self._marks.mark(inner.path, reference.cache_control),
                ]
            else:
                parts += self._text(inner, "a tool result")
        if not any(isinstance(part, Text) for part in parts):
            self._marks.piece()
        parts += self._marks.mark(block.path, result.cache_control)
        return Turn(role="tool", parts=tuple(parts), call_id=result.tool_use_id, is_error=result.is_error)

    def _text(self, block: _Block, where: str) -> list[Text | CachePoint]:
        if block.kind != "text":
            raise refused_block(block.path, block.kind, where)
        text = structure(block.members, TextBlock, at=block.path)
        if text.text:
            self._marks.piece()
        return [*([Text(text.text)] if text.text else []), *self._marks.mark(block.path, text.cache_control)]


def _reasoning(block: _Block) -> list[Reasoning]:
    """The reasoning of a block, shown or carried by its signature; none where only another service can read it."""
    if block.kind == "thinking":
        thinking = structure(block.members, ThinkingBlock, at=block.path)
        found = thinking.thinking or hidden_reasoning(thinking.signature, f"{block.path}.signature")
    else:
        redacted = structure(block.members, RedactedThinkingBlock, at=block.path)
        found = hidden_reasoning(redacted.data, f"{block.path}.data")
    return [Reasoning(found)] if found else []


def _speeches(messages: Sequence[WireMessage]) -> list[_Speech]:
    speeches: list[_Speech] = []
    for at, message in enumerate(messages):
        path = f"messages[{at}]"
        blocks = list(_blocks(f"{path}.content", message.content))
        if speeches and speeches[-1].role == message.role != "system":
            speeches[-1].blocks.extend(blocks)
        else:
            speeches.append(_Speech(_ROLES[message.role], path, blocks))
    return speeches


_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


def _blocks(path: str, content: str | Sequence[Mapping[str, JSONValue]]) -> Iterator[_Block]:
    if isinstance(content, str):
        yield _Block(path, {"type": "text", "text": content})
        return
    for at, members in enumerate(content):
        yield _Block(f"{path}[{at}]", members)


def _is_billing(block: _Block) -> bool:
    text = block.members.get("text")
    return block.kind == "text" and isinstance(text, str) and text.startswith(BILLING)


def _invalid_history(path: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: {why}", code="invalid_tool_history", param=path)
