"""`POST /v1/responses` and what belongs to it: the protocol itself.

Everything it does goes through the plugin interface. Invariant: a Response that is to be stored is stored before its
end is said, so whoever has its id can ask for it.
"""

import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

import attrs
import trio

from ninfer.conversation import Event, Finished, RequestError
from ninfer.protocols.openai_errors import openai_error, openai_stream_error
from ninfer.protocols.openai_responses.decode import ResponsesCall, decode
from ninfer.protocols.openai_responses.echo import echoed_fields
from ninfer.protocols.openai_responses.encode import Answer, Head, WireEvent, frame
from ninfer.protocols.openai_responses.items import new_id, own_items
from ninfer.protocols.openai_responses.order import OrderChecker
from ninfer.protocols.openai_responses.resources import Resources
from ninfer.protocols.openai_responses.store import Context, ResponseStore, StoredResponse
from ninfer.protocols.openai_responses.wire import TEXTS, ResponsesBody
from ninfer.protocols.places import located, placed
from ninfer.protocols.plugin import Call, FrameSink, Route, WireError
from ninfer.service.host import ProtocolHost

log = logging.getLogger(__name__)

SILENCE_S = 60.0
"""Clients that do not count comments as life give up after minutes: an event comes at least this often (D31)."""

IGNORED_TOOLS_HEADER = "x-ninfer-ignored-tools"
MOST_IGNORED = 16
"""Types that are named there; no client has more, and a header of many kilobytes is one that clients cannot read."""


class OpenAIResponses:
    """OpenAI's Responses, with their store."""

    name = "openai_responses"
    request_id_header = "x-request-id"
    new_answer = Answer

    def __init__(self, host: ProtocolHost) -> None:
        self.host = host
        self.store = ResponseStore(
            max_records=host.flags.response_store_max_records, max_bytes=host.flags.response_store_max_mib << 20
        )
        self._resources = Resources(self.store)

    def routes(self) -> Sequence[Route]:
        """Creation, counting, and what can be done with a stored Response."""
        return (
            Route("POST", "/v1/responses", self.create, summary="Generate one Response.", body=ResponsesBody),
            Route("POST", "/v1/responses/input_tokens", self.count, summary="Count the prompt.", body=ResponsesBody),
            *self._resources.routes(),
        )

    def error(self, error: RequestError, request_id: str) -> WireError:
        """OpenAI's envelope."""
        return openai_error(error)

    def stream_error(self, error: RequestError, request_id: str) -> bytes:
        """Only for a stream that has no Response yet; all others end with `response.failed`."""
        return openai_stream_error(error)

    async def create(self, call: Call) -> None:
        """Generate one Response."""
        asked = await call.decoded(partial(decode, shelf=self.store), texts=TEXTS)
        self.host.check_model(asked.wire.model)
        headers = _headers(asked)
        head = Head(
            id=new_id("resp"), created_at=int(time.time()), model=self.host.model.id, echoed=echoed_fields(asked)
        )
        answer = self.new_answer(
            head, summary=asked.summary is not None, mirror=asked.mirrors_reasoning, origin=asked.table.origin
        )
        if asked.wire.stream:
            await _Stream(self, call, asked, answer).run(headers)
            return
        async with placed(self.host.generate(asked.request), asked.places) as events:
            async for event in events:
                if isinstance(event, Finished):
                    answer.finish(event)
                    self.keep(asked, answer)
                else:
                    answer.feed(event)
        await call.reply(answer.body, headers=headers)

    async def count(self, call: Call) -> None:
        """Count the tokens of the prompt that the same body would make (RTOK-001)."""
        asked = await call.decoded(partial(decode, shelf=self.store), texts=TEXTS)
        self.host.check_model(asked.wire.model)
        with located(asked.places):
            tokens = await self.host.count_tokens(asked.request)
        await call.reply({"object": "response.input_tokens", "input_tokens": tokens}, headers=_headers(asked))

    def keep(self, asked: ResponsesCall, answer: Answer) -> None:
        """Store the Response as it stands, if it is to be stored.

        Raises:
            InvalidRequest: it is larger than the store (RSTORE-018).
        """
        if not asked.wire.store:
            return
        parent = None if asked.previous is None else asked.previous.context
        self.store.put(
            StoredResponse(
                id=str(answer.body["id"]),
                body=answer.body,
                input=asked.input,
                context=Context(parent=parent, items=(*asked.input, *own_items(answer.output))),
                preserve_thinking=asked.preserve_thinking,
            )
        )


@attrs.define
class _Stream:
    """One streamed answer: events as they come, and a sign of life in a long silence."""

    protocol: OpenAIResponses
    call: Call
    asked: ResponsesCall
    answer: Answer
    _checker: OrderChecker = attrs.field(factory=OrderChecker)
    _lock: trio.Lock = attrs.field(factory=trio.Lock)
    _last_s: float = attrs.field(factory=trio.current_time)

    async def run(self, headers: Mapping[str, str]) -> None:
        """Send the whole stream; a failure after its head is told by `_failed`."""
        told = False
        try:
            async with self.call.stream(headers=headers, failed=self._failed) as sink, trio.open_nursery() as nursery:
                nursery.start_soon(self._break_silence, sink)
                generation = self.protocol.host.generate(self.asked.request)
                async with placed(generation, self.asked.places) as events:
                    await self._send_all(sink, events)
                nursery.cancel_scope.cancel()
            told = True
        except Exception:
            told = True
            raise
        finally:
            if not told:
                self._keep_the_rest()

    async def _send_all(self, sink: FrameSink, events: AsyncIterator[Event]) -> None:
        async for event in events:
            async with self._lock:
                if isinstance(event, Finished):
                    await self._send(sink, self.answer.finish(event))
                    self.protocol.keep(self.asked, self.answer)
                    await self._send(sink, self.answer.end())
                else:
                    await self._send(sink, self.answer.feed(event))

    async def _send(self, sink: FrameSink, events: Sequence[WireEvent]) -> None:
        for event in events:
            if self.protocol.host.flags.check_events:
                self._checker.take(event)
            await sink.send(frame(event))
            self._last_s = trio.current_time()

    async def _break_silence(self, sink: FrameSink) -> None:
        while True:
            await trio.sleep_until(self._last_s + SILENCE_S)
            async with self._lock:  # a slow client that still has frames to take is not kept waiting by us
                if trio.current_time() >= self._last_s + SILENCE_S and not self.answer.ended:
                    await self._send(sink, self.answer.still_running())

    def _failed(self, error: RequestError) -> bytes:
        return b"".join(map(frame, self.answer.failed(error)))

    def _keep_the_rest(self) -> None:
        """The client has gone. It may have the id, and ask for what there was (D13)."""
        if not self.answer.begun or self.answer.ended:
            return
        self.answer.cancelled()
        try:
            self.protocol.keep(self.asked, self.answer)
        except RequestError as error:
            log.info("a cancelled Response is not stored: %s", error.message)


def _headers(asked: ResponsesCall) -> dict[str, str]:
    if not asked.table.ignored:
        return {}
    ignored = asked.table.ignored
    names = ", ".join(ignored[:MOST_IGNORED] + (("...",) if len(ignored) > MOST_IGNORED else ()))
    log.warning("hosted tools are not offered and were left out of a request: %s", names)
    return {IGNORED_TOOLS_HEADER: names}
