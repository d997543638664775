"""From events to a Response: a state machine whose steps are the stream's events and whose state is the object.

    answer = Answer(head, summary=False, mirror=False, origin=table.origin)
    answer.open(), answer.feed(event) ..., answer.finish(finished), answer.end()       # wire events, in order
    answer.body                                                                        # the terminal object

A stream sends the wire events; an aggregate request drops them and takes `body`, so the two cannot disagree. It knows
Responses' wire names and neither HTTP nor the store. Invariant: what it returns passes `order.OrderChecker`, however
events come and whenever it is cut short.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs

from ninfer.conversation import CallMade, Event, Finished, FinishReason, RequestError, TextDelta, ToolCall, Usage
from ninfer.protocols.openai_responses.items import new_id
from ninfer.protocols.openai_responses.store import OVERFLOW_CODE
from ninfer.protocols.openai_responses.tools import Origin
from ninfer.protocols.sse import dump_json, event_frame

WireEvent: TypeAlias = Mapping[str, object]

SUMMARY_PLACEHOLDER = "The reasoning is given in full; it is not summarized."
"""What stands for a summary, whatever kind was asked for (RESP-013)."""

_LIMITS = (FinishReason.OUTPUT_LIMIT, FinishReason.CONTEXT_LIMIT)
_PARTS = {"answer": "output_text", "reasoning": "reasoning_text"}


@attrs.frozen(kw_only=True)
class Head:
    """What is the same in every snapshot of a Response."""

    id: str
    created_at: int
    model: str
    echoed: Mapping[str, object]
    """Fields of the request as the object repeats them, with neutral values for what was not given."""


def usage_object(usage: Usage) -> dict[str, object]:
    """Usage with every key that the SDKs know (D30)."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


@attrs.define(kw_only=True)
class _Open:
    """The text Item that is being written."""

    id: str
    index: int
    channel: str
    texts: list[str] = attrs.field(factory=list)


class Answer:
    """One Response from its creation to its end."""

    def __init__(self, head: Head, *, summary: bool, mirror: bool, origin: Callable[[str], Origin]) -> None:
        self._head = head
        self._summary = [{"type": "summary_text", "text": SUMMARY_PLACEHOLDER}] if summary else []
        self._mirror = mirror
        self._origin = origin
        self._sequence = 0
        self._output: list[dict[str, object]] = []
        self._open: _Open | None = None
        self._finished: Finished | None = None
        self.begun = False
        """Whether `open` has been called: the id is out."""
        self.ended = False
        self.body: dict[str, object] = self._object("in_progress")
        """The object as it stands; terminal once `finish`, `failed` or `cancelled` has been called."""

    @property
    def output(self) -> Sequence[Mapping[str, object]]:
        """The complete Items."""
        return self._output

    def open(self) -> list[WireEvent]:
        """The events that begin every stream; nothing when it has begun already."""
        if self.begun:
            return []
        self.begun = True
        return [
            self._event("response.created", response=self.body),
            self._event("response.in_progress", response=self.body),
        ]

    def still_running(self) -> list[WireEvent]:
        """What a long silence is broken with: the first snapshot again (D31)."""
        return self.open() or [self._event("response.in_progress", response=self._object("in_progress", output=[]))]

    def feed(self, event: Event) -> list[WireEvent]:
        """What `event` adds; `Finished` goes to `finish`."""
        events = self.open()
        match event:
            case TextDelta(text, channel):
                if self._open is None or self._open.channel != channel:
                    events += self._close("completed")
                    events += self._start(channel)
                events.append(self._delta(text))
            case CallMade(call):
                events += self._close("completed")
                events += self._call(call)
        return events

    def finish(self, finished: Finished) -> list[WireEvent]:
        """Close what is open. The Response is whole now, and `end` says so to the stream."""
        limited = finished.reason in _LIMITS
        events = self.open() + self._close("incomplete" if limited else "completed")
        self._finished = finished
        self.body = self._object("incomplete" if limited else "completed")
        return events

    def end(self) -> list[WireEvent]:
        """The terminal event."""
        self.ended = True
        return [self._event(f"response.{self.body['status']}", response=self.body)]

    def failed(self, error: RequestError) -> list[WireEvent]:
        """The last events of a stream that fails; nothing when it has ended already.

        Items that were sent stay in the object, but for those of a Response that was too large to keep.
        """
        if self.ended:
            return []
        self.ended = True
        events = self.open()
        output = [] if error.code == OVERFLOW_CODE else self._partial()
        self.body = self._object("failed", output=output)
        self.body["error"] = {"code": error.code, "message": error.message}
        return [*events, self._event("response.failed", response=self.body)]

    def cancelled(self) -> None:
        """The client has gone: the object keeps what there was (D13)."""
        self._output = self._partial()
        self._open = None
        self.body = self._object("cancelled")

    def _partial(self) -> list[dict[str, object]]:
        return self._output if self._open is None else [*self._output, self._item(self._open, "incomplete")]

    def _start(self, channel: str) -> list[WireEvent]:
        reasons = channel == "reasoning"
        at = self._open = _Open(id=new_id("rs" if reasons else "msg"), index=len(self._output), channel=channel)
        item = {**self._item(at, "in_progress"), "content": []}
        if reasons:
            item = {**item, "summary": []}
            item.pop("encrypted_content", None)
        events = [self._event("response.output_item.added", output_index=at.index, item=item)]
        if reasons and self._summary:
            events += self._summarize(at)
        return [*events, self._on_part(at, "response.content_part.added", part=self._part(at))]

    def _summarize(self, at: _Open) -> list[WireEvent]:
        where = {"item_id": at.id, "output_index": at.index, "summary_index": 0}
        (part,) = self._summary
        text = part["text"]
        return [
            self._event("response.reasoning_summary_part.added", **where, part={**part, "text": ""}),
            self._event("response.reasoning_summary_text.delta", **where, delta=text),
            self._event("response.reasoning_summary_text.done", **where, text=text),
            self._event("response.reasoning_summary_part.done", **where, part=part),
        ]

    def _delta(self, text: str) -> WireEvent:
        at = self._open
        assert at is not None
        at.texts.append(text)
        if at.channel == "answer":
            return self._on_part(at, "response.output_text.delta", delta=text, logprobs=[])
        return self._on_part(at, "response.reasoning_text.delta", delta=text)

    def _close(self, status: str) -> list[WireEvent]:
        at, self._open = self._open, None
        if at is None:
            return []
        item, part = self._item(at, status), self._part(at)
        self._output.append(item)
        extra: dict[str, object] = {"logprobs": []} if at.channel == "answer" else {}
        return [
            self._on_part(at, f"response.{_PARTS[at.channel]}.done", text=part["text"], **extra),
            self._on_part(at, "response.content_part.done", part=part),
            self._event("response.output_item.done", output_index=at.index, item=item),
        ]

    def _call(self, call: ToolCall) -> list[WireEvent]:
        namespace, name = self._origin(call.name)
        arguments = dump_json(call.arguments)
        item: dict[str, object] = {
            "id": new_id("fc"),
            "type": "function_call",
            "call_id": call.id if call.id.startswith("call_") else f"call_{call.id}",
            "name": name,
            "arguments": arguments,
            "status": "completed",
        }
        if namespace is not None:
            item["namespace"] = namespace
        index = len(self._output)
        self._output.append(item)
        where = {"item_id": item["id"], "output_index": index}
        started = {**item, "arguments": "", "status": "in_progress"}
        return [
            self._event("response.output_item.added", output_index=index, item=started),
            self._event("response.function_call_arguments.delta", **where, delta=arguments),
            self._event("response.function_call_arguments.done", **where, name=name, arguments=arguments),
            self._event("response.output_item.done", output_index=index, item=item),
        ]

    def _item(self, at: _Open, status: str) -> dict[str, object]:
        part = self._part(at)
        if at.channel == "answer":
            return {"id": at.id, "type": "message", "role": "assistant", "status": status, "content": [part]}
        item: dict[str, object] = {"id": at.id, "type": "reasoning", "summary": self._summary, "content": [part]}
        mirror = {"encrypted_content": part["text"]} if self._mirror else {}
        return {**item, **mirror, "status": status}

    def _part(self, at: _Open) -> dict[str, object]:
        part: dict[str, object] = {"type": _PARTS[at.channel], "text": "".join(at.texts)}
        return {**part, "annotations": [], "logprobs": []} if at.channel == "answer" else part

    def _on_part(self, at: _Open, kind: str, **members: object) -> WireEvent:
        return self._event(kind, item_id=at.id, output_index=at.index, content_index=0, **members)

    def _event(self, kind: str, **members: object) -> WireEvent:
        number, self._sequence = self._sequence, self._sequence + 1
        return {"type": kind, "sequence_number": number, **members}

    def _object(self, status: str, output: Sequence[Mapping[str, object]] | None = None) -> dict[str, object]:
        """The Response object with every key that a reader may ask for (D30)."""
        usage = None if self._finished is None else usage_object(self._finished.usage)
        limited = status == "incomplete"
        return {
            "id": self._head.id,
            "object": "response",
            "created_at": self._head.created_at,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if limited else None,
            "model": self._head.model,
            **self._head.echoed,
            "output": list(self._output if output is None else output),
            "usage": usage,
        }


def frame(event: WireEvent) -> bytes:
    """One wire event as an SSE frame: its name stands before the data too (RSSE-001)."""
    return event_frame(str(event["type"]), event)
