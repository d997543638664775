"""From events to the answers of Messages: a stream of named events, or one message that is a fold over that stream.

Order of a stream: message_start, for each block its start, deltas and stop, message_delta, message_stop; `order` has
the rules. The aggregate is folded from the same wire events, so the two cannot disagree. It knows no HTTP.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Literal, TypeAlias

import attrs

from ninfer.conversation import (
    CallMade,
    Event,
    Finished,
    FinishReason,
    PromptProgress,
    Started,
    TextDelta,
    ToolCall,
    Usage,
)
from ninfer.protocols.anthropic_messages.fold import MessageFold
from ninfer.protocols.anthropic_messages.signatures import VISIBLE, hidden_signature
from ninfer.protocols.sse import dump_json, event_frame

WireEvent: TypeAlias = dict[str, object]

_REASONS: Mapping[FinishReason, str] = {
    FinishReason.STOP_TOKEN: "end_turn",
    FinishReason.STOP_STRING: "stop_sequence",
    FinishReason.OUTPUT_LIMIT: "max_tokens",
    FinishReason.CONTEXT_LIMIT: "model_context_window_exceeded",
}
_LIMITS = (FinishReason.OUTPUT_LIMIT, FinishReason.CONTEXT_LIMIT)

Kind: TypeAlias = Literal["text", "thinking"]
_KINDS: Mapping[str, Kind] = {"answer": "text", "reasoning": "thinking"}


@attrs.frozen(kw_only=True)
class Head:
    """What the answer says of itself."""

    id: str
    model: str
    """The label that the caller gave."""


def input_usage(prompt_tokens: int, cached_tokens: int) -> dict[str, object]:
    """The input's share: reused and other tokens, which add up to the prompt; what was cached is unknown (ANTH-041)."""
    return {
        "input_tokens": prompt_tokens - cached_tokens,
        "cache_creation_input_tokens": None,
        "cache_read_input_tokens": cached_tokens,
        "server_tool_use": None,
    }


def final_usage(usage: Usage) -> dict[str, object]:
    """The cumulative usage at the end."""
    return {
        **input_usage(usage.prompt_tokens, usage.cached_tokens),
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def stop_reason(finished: Finished, calls: int) -> str:
    """Why the turn ended; calls that were made count unless a limit ended it (ANTH-016)."""
    return "tool_use" if calls and finished.reason not in _LIMITS else _REASONS[finished.reason]


class MessageEncoder:
    """The wire events of one answer."""

    def __init__(self, head: Head, *, show_thinking: bool) -> None:
        """Without `show_thinking` reasoning travels in the signatures of its blocks alone (ANTH-021)."""
        self._head = head
        self._show_thinking = show_thinking
        self._index = -1
        self._open: Kind | None = None
        self._hidden: list[str] = []
        self._calls = 0
        self._before_text = self._after_text = ""

    def frames(self, event: Event) -> list[bytes]:
        """What `event` puts on the wire, perhaps nothing."""
        if isinstance(event, TextDelta) and self._open == _KINDS[event.channel] and self._shown(self._open):
            # The hot path: everything but the text is there already.
            return [f"{self._before_text}{dump_json(event.text)}{self._after_text}".encode()]
        return [event_frame(str(wire["type"]), wire) for wire in self.events(event)]

    def events(self, event: Event) -> list[WireEvent]:
        """`event` as wire events; `frames` says the same in bytes."""
        match event:
            case TextDelta(text, channel):
                return self._text(_KINDS[channel], text)
            case Started():
                return [{"type": "message_start", "message": self._message(event)}]
            case PromptProgress():
                return []
            case CallMade(call):
                return [*self._close(), *self._call(call)]
            case Finished():
                return [*self._close(), *self._end(event)]

    def _shown(self, kind: Kind) -> bool:
        return kind == "text" or self._show_thinking

    def _message(self, started: Started) -> dict[str, object]:
        return {
            "id": self._head.id,
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "container": None,
            "usage": {
                **input_usage(started.prompt_tokens, started.cached_tokens),
                "cache_creation": None,
                "inference_geo": None,
                "service_tier": None,
                "output_tokens": 0,
                "output_tokens_details": {"thinking_tokens": 0},
            },
        }

    def _text(self, kind: Kind, text: str) -> list[WireEvent]:
        events = [] if self._open == kind else [*self._close(), self._begin(kind)]
        if self._shown(kind):
            return [*events, self._delta({"type": f"{kind}_delta", kind: text})]
        self._hidden.append(text)
        return events

    def _begin(self, kind: Kind) -> WireEvent:
        self._open = kind
        self._index += 1
        marked = event_frame("content_block_delta", self._delta({"type": f"{kind}_delta", kind: "@"})).decode()
        self._before_text, self._after_text = marked.split('"@"')
        empty = {"text": "", "citations": None} if kind == "text" else {"thinking": "", "signature": ""}
        return {"type": "content_block_start", "index": self._index, "content_block": {"type": kind, **empty}}

    def _close(self) -> list[WireEvent]:
        kind, self._open = self._open, None
        if kind is None:
            return []
        events = [self._stop()]
        if kind == "thinking":
            signature = VISIBLE if self._show_thinking else hidden_signature("".join(self._hidden))
            self._hidden.clear()
            events.insert(0, self._delta({"type": "signature_delta", "signature": signature}))
        return events

    def _call(self, call: ToolCall) -> list[WireEvent]:
        self._index += 1
        self._calls += 1
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}, "caller": {"type": "direct"}}
        return [
            {"type": "content_block_start", "index": self._index, "content_block": block},
            self._delta({"type": "input_json_delta", "partial_json": dump_json(call.arguments)}),
            self._stop(),
        ]

    def _delta(self, delta: dict[str, object]) -> WireEvent:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _stop(self) -> WireEvent:
        return {"type": "content_block_stop", "index": self._index}

    def _end(self, finished: Finished) -> list[WireEvent]:
        delta = {
            "stop_reason": stop_reason(finished, self._calls),
            "stop_sequence": finished.stop,
            "stop_details": None,
            "container": None,
        }
        return [
            {"type": "message_delta", "delta": delta, "usage": final_usage(finished.usage)},
            {"type": "message_stop"},
        ]


async def aggregate(encoder: MessageEncoder, events: AsyncIterator[Event]) -> dict[str, object]:
    """The whole answer as one object."""
    folded = MessageFold()
    async for event in events:
        for wire in encoder.events(event):
            folded.add(wire)
    return folded.message()
