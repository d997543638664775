"""From events to Chat's answers: chunks of a stream, or one object that is a fold over the same events.

Order of a stream: a chunk with the role, deltas of reasoning and content, a chunk with the finish reason, a usage
chunk if it was asked for; `[DONE]` is the route's. It knows Chat's wire names and no HTTP.
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


def call_object(call: ToolCall) -> dict[str, object]:
    """A call as Chat writes it: the arguments are JSON in a string."""
    function = {"name": call.name, "arguments": dump_json(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def finish_reason(finished: Finished, calls: int) -> str:
    """Chat's word for the end; calls that were made count unless a limit ended the turn (CHAT-044)."""
    word = _REASONS[finished.reason]
    return "tool_calls" if calls and word == "stop" else word


class ChunkEncoder:
    """The frames of one streamed answer."""

    def __init__(self, head: Head, *, include_usage: bool, usage_chunk_choice: bool) -> None:
        self._head = head
        self._include_usage = include_usage
        self._usage_chunk_choice = usage_chunk_choice
        self._calls = 0
        # One delta is the hot path: everything but the text is made once.
        marked = dump_json(self._chunk([_choice({"content": "@"})]))
        start, self._after_text = marked.split('"content":"@"')
        self._before_text = {channel: f'data: {start}"{name}":' for channel, name in _FIELDS.items()}
        self._after_text += "\n\n"

    def frames(self, event: Event) -> list[bytes]:
        """What `event` puts on the wire, perhaps nothing."""
        match event:
            case TextDelta(text, channel):
                return [f"{self._before_text[channel]}{dump_json(text)}{self._after_text}".encode()]
            case Started():
                return [data_frame(self._chunk([_choice({"role": "assistant", "content": ""})]))]
            case PromptProgress():
                return []
            case CallMade(call):
                self._calls += 1
                delta = {"index": self._calls - 1, **call_object(call)}
                return [data_frame(self._chunk([_choice({"tool_calls": [delta]})]))]
            case Finished():
                return self._last_frames(event)

    def _last_frames(self, finished: Finished) -> list[bytes]:
        frames = [data_frame(self._chunk([_choice({}, finish_reason(finished, self._calls))]))]
        if self._include_usage:
            choices = [_choice({})] if self._usage_chunk_choice else []
            frames.append(data_frame({**self._chunk(choices), "usage": usage_object(finished.usage)}))
        return frames

    def _chunk(self, choices: list[dict[str, object]]) -> dict[str, object]:
        chunk: dict[str, object] = {
            "id": self._head.id,
            "object": "chat.completion.chunk",
            "created": self._head.created,
            "model": self._head.model,
            "choices": choices,
        }
        return {**chunk, "usage": None} if self._include_usage else chunk


def _choice(delta: dict[str, object], reason: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


async def aggregate(head: Head, events: AsyncIterator[Event]) -> dict[str, object]:
    """The whole answer as one object."""
    texts: dict[str, list[str]] = {channel: [] for channel in _FIELDS}
    calls: list[dict[str, object]] = []
    finished: Finished | None = None
    async for event in events:
        if isinstance(event, TextDelta):
            texts[event.channel].append(event.text)
        elif isinstance(event, CallMade):
            calls.append(call_object(event.call))
        elif isinstance(event, Finished):
            finished = event
    if finished is None:
        raise RuntimeError("the events ended without Finished")
    message: dict[str, object] = {
        "role": "assistant",
        "content": "".join(texts["answer"]),
        "refusal": None,
        "annotations": [],
    }
    if texts["reasoning"]:
        message["reasoning_content"] = "".join(texts["reasoning"])
    if calls:
        message["tool_calls"] = calls
    reason = finish_reason(finished, len(calls))
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [choice],
        "usage": usage_object(finished.usage),
    }
