"""One HTTP request on its way through a protocol's handler: the server's side of `protocols.plugin.Call`.

The handler runs in a task of its own inside the connection's nursery, so a client that leaves cancels it. The view
waits here until it is decided what the answer begins with. It knows no protocol and no engine.

Invariant: until the head of a stream has left, a failure is a whole HTTP answer; afterwards it is the
protocol's stream error and the end of the body (D1). A whole answer leaves only when the handler has ended, so what
the request owned is free again when the client reads it.
"""

import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol as Interface

import attrs
import trio

from ninfer.conversation import EngineUnavailable, InternalError, RequestError
from ninfer.protocols.mounting import check_headers, described
from ninfer.protocols.plugin import Decoded, Handler, JSONValue, Protocol, ReplyBody, StreamFailed, StreamForm
from ninfer.server.answers import Answer
from ninfer.server.envelopes import error_answer, error_frame
from ninfer.server.frames import FrameQueue
from ninfer.server.unread import Unread

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class CallFacts:
    """What a call is, as far as its handler may know."""

    request_id: str
    headers: Mapping[str, str]
    path_args: Mapping[str, str]
    query: Mapping[str, str]


class ReadBody(Interface):
    """Reads the body of one request."""

    async def __call__(self, decode: Callable[[JSONValue], Decoded], texts: tuple[str, ...]) -> Decoded:
        """See `Call.decoded`."""
        ...


class Exchange:
    """A request and the answer that is being made; implements `Call`."""

    def __init__(
        self, facts: CallFacts, protocol: Protocol, form: StreamForm, read_body: ReadBody, unread: Unread
    ) -> None:
        self._facts = facts
        self._protocol = protocol
        self.form = form
        """Of the stream, should the answer be one."""
        self._read_body = read_body
        self._scope = trio.CancelScope()
        self._stopped = False
        self._reply: Answer | None = None
        self._streaming = False
        self._decided = trio.Event()
        """Set when the handler has entered a stream or has ended."""
        self._head = trio.Event()
        """Set when the stream has a first frame or the handler has ended."""
        self._failed: StreamFailed | None = None
        self.frames = FrameQueue(unread)
        self.stream_headers: Mapping[str, str] = {}
        """What the handler adds to the head of a stream."""
        self.answer: Answer | None = None
        """The whole answer, once the handler has ended without a stream that had begun."""
        self.head_sent = False
        """Whether the answer has begun as an event stream: there is no way back."""

    @property
    def request_id(self) -> str:
        """See `Call`, as for all members up to `stream`."""
        return self._facts.request_id

    @property
    def headers(self) -> Mapping[str, str]:
        """Request headers."""
        return self._facts.headers

    @property
    def path_args(self) -> Mapping[str, str]:
        """Values of the route's placeholders."""
        return self._facts.path_args

    @property
    def query(self) -> Mapping[str, str]:
        """Query parameters."""
        return self._facts.query

    async def decoded(self, decode: Callable[[JSONValue], Decoded], *, texts: tuple[str, ...] = ()) -> Decoded:
        """The body, decoded."""
        return await self._read_body(decode, texts)

    async def reply(
        self,
        body: ReplyBody,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> None:
        """Answer with one body, once the handler has ended."""
        await trio.lowlevel.checkpoint()
        if self._reply is not None or self._streaming:
            raise RuntimeError("a call is answered once")
        self._reply = Answer.of(body, status=status, headers=headers, content_type=content_type)

    @asynccontextmanager
    async def stream(
        self, *, headers: Mapping[str, str] | None = None, failed: StreamFailed | None = None
    ) -> AsyncIterator["Exchange"]:
        """Answer with a stream."""
        if self._reply is not None or self._streaming:
            raise RuntimeError("a call is answered once")
        check_headers(headers or {})
        self._streaming = True
        self.stream_headers = headers or {}
        self._failed = failed
        self._decided.set()
        yield self

    async def send(self, frame: bytes) -> None:
        """Queue a frame: the exchange is its own `FrameSink`."""
        if not isinstance(frame, bytes):
            raise TypeError(f"a frame is bytes, not {type(frame).__name__}")
        if not frame:  # says nothing, and would look like the end
            await trio.lowlevel.checkpoint()
            return
        await self.frames.put(frame)
        if not self.head_sent:
            self.head_sent = True
            self._head.set()

    def stop(self) -> None:
        """End the request because the server is stopping. Idempotent."""
        self._stopped = True
        self._scope.cancel()

    async def run(self, handler: Handler) -> None:
        """Run the handler to its end and see to it that there is an answer, whatever it does."""
        error: RequestError | None = None
        with self._scope:
            try:
                await handler(self)
            except (Exception, SystemExit) as raised:
                error = self._judged(raised)
            except BaseExceptionGroup as group:  # a nursery of the handler's, cancelled while something failed in it
                cancelled, failed = group.split(trio.Cancelled)
                if failed is not None:
                    error = self._judged(failed)
                if cancelled is not None:
                    raise cancelled from None
        if self._stopped and self._scope.cancelled_caught:
            error = EngineUnavailable("the server is stopping")
        elif error is None and self._reply is None and not self.head_sent:
            log.error("request %s: the protocol %s ended without an answer", self.request_id, self._protocol.name)
            error = self._fault()
        self._finish(error)
        del error  # it knows this frame and all that it was raised in, so nothing of the request would go before both

    async def begin(self, keep_alive_s: float) -> bool:
        """Wait for what the answer begins with; true if its first bytes have to be a keep-alive.

        Afterwards `answer` is the whole answer, or None and the answer is the stream of `frames`.
        """
        await self._decided.wait()
        with trio.move_on_after(math.inf if self.form.keep_alive is None else keep_alive_s):
            await self._head.wait()
        if self.answer is not None:
            return False
        silent, self.head_sent = not self.head_sent, True
        return silent

    def _judged(self, raised: BaseException) -> RequestError:
        cause = _single_cause(raised)
        if isinstance(cause, RequestError):
            if isinstance(cause, InternalError):
                log.error("request %s failed", self.request_id, exc_info=raised)
            return cause
        name, what = self._protocol.name, described(cause, self._protocol)
        log.error("request %s: the protocol %s failed: %s", self.request_id, name, what)
        log.debug("request %s: where it failed", self.request_id, exc_info=raised)
        return self._fault()

    def _fault(self) -> InternalError:
        return InternalError(f"internal error; the server's log has more under request id {self.request_id}")

    def _finish(self, error: RequestError | None) -> None:
        if error is None:
            self.answer = None if self.head_sent else self._reply
        elif self.head_sent:
            self.frames.put_now(
                error_frame(self._protocol, error, self.request_id, form=self.form, failed=self._failed)
            )
        else:
            self.answer = error_answer(self._protocol, error, self.request_id)
        self.frames.close()
        self._decided.set()
        self._head.set()


def _single_cause(raised: BaseException) -> BaseException:
    """What a nursery has wrapped, if it is one error."""
    while isinstance(raised, BaseExceptionGroup) and len(raised.exceptions) == 1:
        raised = raised.exceptions[0]
    return raised
