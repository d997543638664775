"""One generation's way back: engine events in, conversation events out.

It counts tokens and keeps the times; the reply reader makes text, the call reader makes calls of some of it. A stop
string ends the events here, and leaving the submission ends the engine's work. It knows no protocol and no scheduling.
"""

from collections.abc import AsyncGenerator

import attrs
import trio

from ninfer.conversation import (
    Committed,
    Event,
    Finished,
    FinishReason,
    InternalError,
    PromptProgress,
    QueueTimeout,
    Started,
    TextDelta,
    Timings,
    Usage,
)
from ninfer.engine import types as engine
from ninfer.reply import ReplyReader
from ninfer.service.calls import CallReader, Output
from ninfer.service.failures import as_request_error

_REASONS = {
    engine.StopReason.STOP_TOKEN: FinishReason.STOP_TOKEN,
    engine.StopReason.OUTPUT_LIMIT: FinishReason.OUTPUT_LIMIT,
    engine.StopReason.CONTEXT_LIMIT: FinishReason.CONTEXT_LIMIT,
}


def queue_timeout(after_s: float) -> QueueTimeout:
    """The error of a request that was not admitted in time."""
    return QueueTimeout(f"the request was not admitted within {after_s * 1000:.0f} ms of its arrival")


@attrs.define(kw_only=True)
class Generation:
    """A planned generation, and what has happened to it so far."""

    prompt: engine.Prompt
    plan: engine.Plan
    reader: ReplyReader
    calls: CallReader
    clipped: bool
    """The output limit is not the caller's: the context ceiling lies below it."""
    pending_timeout_s: float
    _cached_tokens: int = 0
    _admitted_s: float = 0.0
    _first_token_s: float | None = None
    _last_event_s: float = 0.0

    async def events(
        self, source: trio.MemoryReceiveChannel[engine.EngineEvent], deadline: float
    ) -> AsyncGenerator[Event, None]:
        """The conversation's events; `deadline` is the latest Trio time for the admission.

        Raises:
            RequestError: the request failed, or was not admitted in time.
        """
        yield await self._started(source, deadline)
        async for event in source:
            match event:
                case engine.Tokens():
                    for delta in self._read(event):
                        yield delta
                    if self.reader.stop is not None:
                        for said in self._end(FinishReason.STOP_STRING):
                            yield said
                        return
                case engine.PromptProgress():
                    yield self._progress(event)
                case engine.Finished():
                    for said in self._end(self._reason(event)):
                        yield said
                    return
                case engine.Failed():
                    raise as_request_error(event.error) from event.error
                case engine.Admitted():
                    raise InternalError("the engine admitted one request twice")
        raise InternalError("the engine's events ended without an end")

    async def _started(self, source: trio.MemoryReceiveChannel[engine.EngineEvent], deadline: float) -> Started:
        first: engine.EngineEvent | None = None
        with trio.move_on_at(deadline):
            first = await source.receive()
        match first:
            case None:
                raise queue_timeout(self.pending_timeout_s)
            case engine.Failed():
                raise as_request_error(first.error) from first.error
            case engine.Admitted():
                self._admitted_s = self._last_event_s = first.at_s
                self._cached_tokens = first.cached_tokens
                return Started(prompt_tokens=len(self.prompt.tokens), cached_tokens=first.cached_tokens)
        raise InternalError(f"the engine began with {type(first).__name__}")

    def _read(self, event: engine.Tokens) -> list[TextDelta]:
        if self._first_token_s is None:
            self._first_token_s = event.at_s
        self._last_event_s = event.at_s
        deltas = self.calls.feed(self.reader.feed(event.tokens))
        if not deltas:
            return deltas
        committed = Committed(self.reader.consumed_tokens, self._timings())
        return [TextDelta(delta.text, delta.channel, committed) for delta in deltas]

    def _end(self, reason: FinishReason) -> list[Output | Finished]:
        """What was held back, the calls, and the last event."""
        held = self.calls.feed(self.reader.finish())
        if self.reader.stop is not None:  # what was held back may have completed a stop string after all
            reason = FinishReason.STOP_STRING
        said = [*held, *self.calls.finish(reason, reasoning_open=self.reader.reasoning_open)]
        committed = Committed(self.reader.consumed_tokens, self._timings())
        shown = [TextDelta(one.text, one.channel, committed) if isinstance(one, TextDelta) else one for one in said]
        return [*shown, self._finished(reason)]

    def _progress(self, event: engine.PromptProgress) -> PromptProgress:
        self._last_event_s = event.at_s
        return PromptProgress(
            total_tokens=len(self.prompt.tokens),
            cached_tokens=self._cached_tokens,
            processed_tokens=event.processed_tokens,
            elapsed_s=event.at_s - self._admitted_s,
        )

    def _reason(self, event: engine.Finished) -> FinishReason:
        reason = _REASONS[event.reason]
        return FinishReason.CONTEXT_LIMIT if reason is FinishReason.OUTPUT_LIMIT and self.clipped else reason

    def _timings(self) -> Timings:
        first_s = self._last_event_s if self._first_token_s is None else self._first_token_s
        return Timings(prompt_s=first_s - self._admitted_s, generation_s=self._last_event_s - first_s)

    def _finished(self, reason: FinishReason) -> Finished:
        return Finished(
            reason=reason,
            usage=Usage(
                prompt_tokens=len(self.prompt.tokens),
                cached_tokens=self._cached_tokens,
                completion_tokens=self.reader.consumed_tokens,
                reasoning_tokens=self.reader.reasoning_tokens,
            ),
            timings=self._timings(),
            stop=self.reader.stop,
        )
