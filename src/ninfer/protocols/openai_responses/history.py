"""From Items to turns: assistant Items that follow each other are one turn, outputs answer the calls before them.

An assistant turn is reasoning, then text, then calls; Items in another order would have to be rearranged and are
refused. Every call needs its output right behind its turn; outputs come in the order of the calls (RITEM-008 to -014).
It knows Items, not where they are stored, and nothing of tokens.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ninfer.conversation import InvalidRequest, Part, Reasoning, Text, ToolCall, Turn
from ninfer.protocols.call_results import ResultMatching
from ninfer.protocols.openai_responses.items import AnyItem, CallItem, MessageItem, ReasoningItem, ResultItem
from ninfer.protocols.values import shown

Identity: TypeAlias = Callable[[tuple[str | None, str]], str]
"""The name under which the model knows a function of a namespace."""


def turns_of(items: Iterable[AnyItem], identity: Identity) -> tuple[Turn, ...]:
    """The turns that `items` make, in order.

    Raises:
        InvalidRequest: invalid_assistant_history or invalid_tool_history.
    """
    grouping = _Grouping(identity)
    for item in items:
        grouping.take(item)
    grouping.end_outputs()
    return tuple(grouping.turns)


class _Grouping:
    """Takes Items in order; `turns` are complete after `end_outputs`."""

    def __init__(self, identity: Identity) -> None:
        self.turns: list[Turn] = []
        self._identity = identity
        self._parts: list[Part] = []  # of the assistant turn that is open
        self._calls: dict[str, CallItem] = {}  # call id -> call of the latest assistant turn
        self._matching = ResultMatching(may_lead=False, word="output")

    def take(self, item: AnyItem) -> None:
        """The next Item."""
        if isinstance(item, ResultItem):
            self._end_assistant()
            self._answer(item)
            return
        if isinstance(item, MessageItem) and item.role != "assistant":
            self.end_outputs()
            self.turns.append(Turn(role=item.role, parts=item.parts))
            return
        if not self._parts:
            self.end_outputs()
        self._continue(item)

    def end_outputs(self) -> None:
        """Whatever follows is no output: all calls must have theirs by now."""
        self._end_assistant()
        self.turns += self._matching.end()
        self._calls = {}

    def _continue(self, item: MessageItem | ReasoningItem | CallItem) -> None:
        if isinstance(item, CallItem):
            self._matching.call(item.call_id, _id_place(item))
            self._calls[item.call_id] = item
            self._parts.append(ToolCall(id=item.call_id, name=self._identity(item.origin), arguments=item.arguments))
        elif self._calls or (isinstance(item, ReasoningItem) and self._spoken):
            kind = "reasoning" if isinstance(item, ReasoningItem) else "a message"
            raise InvalidRequest(
                f"{item.path}: {kind} comes too late in its turn, which is reasoning, then messages, then calls",
                code="invalid_assistant_history",
                param=item.path,
            )
        elif isinstance(item, ReasoningItem):
            self._parts.append(Reasoning(item.text))
        else:
            # An empty message is a message all the same: what follows it must not be reasoning.
            self._parts += item.parts or (Text(""),)

    @property
    def _spoken(self) -> bool:
        """Whether the open turn is past its reasoning, however much there is of that."""
        return bool(self._parts) and not isinstance(self._parts[-1], Reasoning)

    def _end_assistant(self) -> None:
        if self._parts:
            self.turns.append(Turn(role="assistant", parts=tuple(self._parts)))
            self._parts = []

    def _answer(self, output: ResultItem) -> None:
        self._matching.result(Turn(role="tool", parts=output.parts, call_id=output.call_id), _id_place(output))
        namespace, name = self._calls[output.call_id].origin
        for member, said, is_ in (("name", output.name, name), ("namespace", output.namespace, namespace)):
            if said is not None and said != is_:
                path = f"{output.path}.{member}"
                raise InvalidRequest(
                    f"{path}: {shown(said)} is not the call's, which is {shown(is_)}",
                    code="invalid_tool_history",
                    param=path,
                )


def _id_place(item: CallItem | ResultItem) -> str:
    return item.path if item.path == "previous_response_id" else f"{item.path}.call_id"
