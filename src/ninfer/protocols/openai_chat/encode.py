"""From events to Chat's answers: chunks of a stream, or one object that is a fold over the same events.

Order of a stream: a chunk with the role, deltas of reasoning, content and calls, a chunk with the finish reason, a
usage chunk if it was asked for; `[DONE]` is the route's. `order` has the rules. It knows Chat's wire names and no HTTP.
"""

from collections.abc import AsyncIterator, Mapping

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
from ninfer.protocols.openai_chat.observations import ProgressReport, timings_object
from ninfer.protocols.openai_chat.tools import FREE_FORM_PARAMETER
from ninfer.protocols.sse import data_frame, dump_json

_REASONS: Mapping[FinishReason, str] = {
    FinishReason.STOP_TOKEN: "stop",
    FinishReason.STOP_STRING: "stop",
    FinishReason.OUTPUT_LIMIT: "length",
    FinishReason.CONTEXT_LIMIT: "length",
}
_FIELDS = {"answer": "content", "reasoning": "reasoning_content"}


@attrs.frozen(kw_only=True)
class Head:
    """What is the same in every chunk of an answer."""

    id: str
    created: int
    model: str


@attrs.frozen(kw_only=True)
class Shape:
    """What a request asks of the form of its answer."""

    include_usage: bool = False
    usage_chunk_choice: bool = False
    timings_per_token: bool = False
    progress: bool = False
    free_form: frozenset[str] = frozenset()
    """Tools whose calls go out as one string (CHAT-022)."""


def usage_object(usage: Usage) -> dict[str, object]:
    """Usage with every key that the SDKs know; what we have nothing for is 0 (D30)."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def call_object(call: ToolCall, free_form: frozenset[str] = frozenset()) -> dict[str, object]:
    """A call as Chat writes it: JSON in a string, members in the model's order (TMPL-006), or a free-form input."""
    if call.name in free_form:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": _free_input(call.arguments)}}
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": dump_json(call.arguments)},
    }


def _free_input(arguments: Mapping[str, object]) -> str:
    """The input alone; a model that named its parameters otherwise loses nothing of what it wrote."""
    if set(arguments) <= {FREE_FORM_PARAMETER}:
        value = arguments.get(FREE_FORM_PARAMETER, "")
        return value if isinstance(value, str) else dump_json(value)
    return dump_json(arguments)


def finish_reason(finished: Finished, calls: int) -> str:
    """Chat's word for the end; calls that were made count unless a limit ended the turn (CHAT-044)."""
    word = _REASONS[finished.reason]
    return "tool_calls" if calls and word == "stop" else word


class ChunkEncoder:
    """The frames of one streamed answer."""

    def __init__(self, head: Head, shape: Shape) -> None:
        self._head = head
        self._shape = shape
        self._calls = 0
        self._started = Started(0, 0)
        self._progress = ProgressReport() if shape.progress else None
        # One delta is the hot path: everything but the text is made once.
        marked = dump_json(self._chunk([_choice({"content": "@"})]))
        start, self._after_text = marked.split('"content":"@"')
        self._before_text = {channel: f'data: {start}"{name}":' for channel, name in _FIELDS.items()}
        self._after_text += "\n\n"

    def frames(self, event: Event) -> list[bytes]:
        """What `event` puts on the wire, perhaps nothing."""
        match event:
            case TextDelta() if self._shape.timings_per_token and event.committed is not None:
                return [self._timed_text(event)]
            case TextDelta(text, channel):
                return [f"{self._before_text[channel]}{dump_json(text)}{self._after_text}".encode()]
            case Started():
                self._started = event
                role = data_frame(self._chunk([_choice({"role": "assistant", "content": ""})]))
                return [role, *self._progress_frames(event)]
            case PromptProgress():
                return self._progress_frames(event)
            case CallMade(call):
                self._calls += 1
                delta = {"index": self._calls - 1, **call_object(call, self._shape.free_form)}
                return [data_frame(self._chunk([_choice({"tool_calls": [delta]})]))]
            case Finished():
                return self._last_frames(event)

    def _progress_frames(self, event: Started | PromptProgress) -> list[bytes]:
        if self._progress is None:
            return []
        report = self._progress.begin(event) if isinstance(event, Started) else self._progress.advance(event)
        return [] if report is None else [data_frame({**self._chunk([_choice({})]), "prompt_progress": report})]

    def _timed_text(self, delta: TextDelta) -> bytes:
        committed = delta.committed
        assert committed is not None
        timings = timings_object(
            prompt_tokens=self._started.prompt_tokens,
            cached_tokens=self._started.cached_tokens,
            completion_tokens=committed.completion_tokens,
            timings=committed.timings,
        )
        return data_frame({**self._chunk([_choice({_FIELDS[delta.channel]: delta.text})]), "timings": timings})

    def _last_frames(self, finished: Finished) -> list[bytes]:
        """The end; the timings go with the very last one (OBS-002)."""
        chunks = [self._chunk([_choice({}, finish_reason(finished, self._calls))])]
        if self._shape.include_usage:
            choices = [_choice({})] if self._shape.usage_chunk_choice else []
            chunks.append({**self._chunk(choices), "usage": usage_object(finished.usage)})
        chunks[-1] = {**chunks[-1], "timings": _timings(finished)}
        return list(map(data_frame, chunks))

    def _chunk(self, choices: list[dict[str, object]]) -> dict[str, object]:
        chunk: dict[str, object] = {
            "id": self._head.id,
            "object": "chat.completion.chunk",
            "created": self._head.created,
            "model": self._head.model,
            "choices": choices,
        }
        return {**chunk, "usage": None} if self._shape.include_usage else chunk


def _choice(delta: dict[str, object], reason: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _timings(finished: Finished) -> dict[str, object]:
    usage = finished.usage
    return timings_object(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        timings=finished.timings,
    )


async def aggregate(head: Head, shape: Shape, events: AsyncIterator[Event]) -> dict[str, object]:
    """The whole answer as one object."""
    texts: dict[str, list[str]] = {channel: [] for channel in _FIELDS}
    calls: list[dict[str, object]] = []
    finished: Finished | None = None
    async for event in events:
        if isinstance(event, TextDelta):
            texts[event.channel].append(event.text)
        elif isinstance(event, CallMade):
            calls.append(call_object(event.call, shape.free_form))
        elif isinstance(event, Finished):
            finished = event
    if finished is None:
        raise RuntimeError("the events ended without Finished")
    reason = finish_reason(finished, len(calls))
    message = _message("".join(texts["answer"]), "".join(texts["reasoning"]), calls)
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": usage_object(finished.usage),
        "timings": _timings(finished),
    }


def _message(content: str, reasoning: str, calls: list[dict[str, object]]) -> dict[str, object]:
    # A turn of calls alone has no content, which the API writes as null.
    message: dict[str, object] = {
        "role": "assistant",
        "content": None if calls and not content else content,
        "refusal": None,
        "annotations": [],
    }
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message
