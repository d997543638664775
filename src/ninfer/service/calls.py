"""The calls in a reply: takes the text that the reply reader shows, gives text and calls.

Ordinary text passes at once; only what may yet be a call is held back. It logs what it recovers and what it lets go as
text, never an argument. It knows the tool parser's rules of when to ask for a recovery, no tokens and no protocol.

Invariant: without declared tools, or where no calls are allowed, the text passes as it is.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import uuid4

import attrs

from ninfer.conversation import CallMade, FinishReason, GenerationRequest, TextDelta, ToolCall
from ninfer.reply import Fallback, ToolDiagnostics, ToolFront, ToolOutcome, recover_from_reasoning

log = logging.getLogger(__name__)

Output: TypeAlias = TextDelta | CallMade

_CUT = (FinishReason.OUTPUT_LIMIT, FinishReason.CONTEXT_LIMIT)
_NO_PARAMETERS: Mapping[str, object] = {}


def new_call_id() -> str:
    """An id that no other call has."""
    return f"call_{uuid4().hex}"


@attrs.define
class CallReader:
    """Reads the calls of one reply. `feed` it deltas in order, then `finish` it once."""

    _declared: Mapping[str, Mapping[str, object]]
    """Tool name -> JSON Schema of its parameters; empty where nothing is to be taken for a call."""
    _tolerant: bool = attrs.field(default=False, kw_only=True)
    _new_id: Callable[[], str] = attrs.field(default=new_call_id, kw_only=True)
    diagnostics: ToolDiagnostics = attrs.field(factory=ToolDiagnostics, init=False)
    """What happened, once the reply has ended."""
    _front: ToolFront = attrs.field(init=False)
    _reasoning: list[str] = attrs.field(factory=list, init=False)
    _shown_chars: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._front = ToolFront(self._declared, tolerant=self._tolerant)

    @classmethod
    def of(cls, request: GenerationRequest, *, tolerant: bool) -> "CallReader":
        """The reader of the reply to `request`."""
        tools = request.tools if request.calls_allowed else ()
        declared = {tool.name: _NO_PARAMETERS if tool.parameters is None else tool.parameters for tool in tools}
        return cls(declared, tolerant=tolerant)

    def feed(self, deltas: Iterable[TextDelta]) -> list[TextDelta]:
        """The part of `deltas` that can be shown now."""
        if not self._declared:
            return list(deltas)
        shown: list[TextDelta] = []
        for delta in deltas:
            if delta.channel == "reasoning":
                if self._tolerant:
                    self._reasoning.append(delta.text)
                shown.append(delta)
            else:
                shown += self._answer(self._front.feed(delta.text))
        return shown

    def finish(self, reason: FinishReason, *, reasoning_open: bool) -> list[Output]:
        """The reply has ended for `reason`, inside a think block or not: the text that was held, and the calls."""
        if not self._declared:
            return []
        outcome = self._front.finish(cut_by_limit=reason in _CUT)
        shown = self._answer(outcome.text)
        # The model has ended its turn while thinking, and has said nothing outside of it (TOOL-022, TOOL-025).
        stranded = reasoning_open and reason is FinishReason.STOP_TOKEN and not self._shown_chars
        if self._tolerant and stranded and not outcome.calls:
            outcome = recover_from_reasoning("".join(self._reasoning), self._declared) or outcome
        self.diagnostics = outcome.diagnostics
        _report(outcome)
        calls = [ToolCall(id=self._new_id(), name=call.name, arguments=call.arguments) for call in outcome.calls]
        return [*shown, *map(CallMade, calls)]

    def _answer(self, text: str) -> Sequence[TextDelta]:
        self._shown_chars += len(text)
        return (TextDelta(text, "answer"),) if text else ()


def _report(outcome: ToolOutcome) -> None:
    """Say what was not read as it was meant to be written: counts and reasons alone (TOOL-020, TOOL-024)."""
    said = outcome.diagnostics
    if said.recovered_from_reasoning:
        log.info("tool calls recovered from thinking that the model never closed: %d", len(outcome.calls))
    elif said.tolerant_recovered:
        log.info(
            "tool calls recovered from damaged markup: %d (%s, %d characters behind them dropped)",
            len(outcome.calls),
            said.fallback.value,
            len(outcome.discarded),
        )
    elif said.fallback is not Fallback.NONE:
        log.info("tool-call markup was returned as text: %s", said.fallback.value)
