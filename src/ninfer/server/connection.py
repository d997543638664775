"""How one HTTP request lives under quart-trio: a nursery that the client's departure cancels.

quart-trio cancels that nursery on every disconnect message, also on the one that the server posts while the last
part of a complete answer is still being sent: with `Connection: close` the connection was then never closed. Here the
message counts only while the answer is incomplete. The nursery is made known to the view through the ASGI scope.
"""

import logging
from collections.abc import Iterator, MutableMapping
from typing import ClassVar, cast
from urllib.parse import urlsplit
from uuid import uuid4

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, HTTPResponseBodyEvent
from quart.wrappers import Request
from quart_trio.asgi import TrioASGIHTTPConnection

from ninfer.conversation import InvalidRequest, Overloaded, RequestError
from ninfer.server.body_room import BodyRoom
from ninfer.server.unread import READ_BYTES, Unread, UnreadRoom
from ninfer.service.accounts import Account, open_account

log = logging.getLogger(__name__)
requests = logging.getLogger("ninfer.request")

MOST_PATH_CHARS = 200
DRAIN_S = 5.0
BODY_SILENCE_S = 75
"""A body may come slowly, but not never: what has come of it takes memory that others wait for."""
_NURSERY = "ninfer.nursery"
_REQUEST_ID = "ninfer.request_id"
_DROPPED = "ninfer.dropped_body"
_UNREAD = "ninfer.unread"
ABORT = "ninfer.abort"
"""In the connection's state: ends the connection at once, in the middle of a write too."""


def new_request_id() -> str:
    """An id that no other request has."""
    return f"req_{uuid4().hex}"


def request_nursery(request: Request) -> trio.Nursery:
    """The nursery of this request: cancelled when its client leaves, and when the answer is complete."""
    return cast(trio.Nursery, _extras(request)[_NURSERY])


def request_id(request: Request) -> str:
    """The id that this request's answer carries."""
    return cast(str, _extras(request)[_REQUEST_ID])


def unread(request: Request) -> Unread:
    """The unread bytes of this request's answer."""
    return cast(Unread, _extras(request)[_UNREAD])


def dropped_body(request: Request) -> RequestError | None:
    """Why this request's body was given up, if it was; what was read of it is of no use."""
    return cast(RequestError | None, _extras(request).get(_DROPPED))


def _extras(request: Request) -> MutableMapping[str, object]:
    return cast(MutableMapping[str, object], request.scope)


def _path(target: str) -> str:
    """The path of a request target, which clients may write as a whole URL, or leave out; quart fails on some."""
    if not target.startswith("/"):
        try:
            target = urlsplit(target).path
        except ValueError:
            target = ""
    return target or "/"


class Connection(TrioASGIHTTPConnection):
    """One request: reads the body, runs the view, sends the answer."""

    room: ClassVar[BodyRoom]
    unread_room: ClassVar[UnreadRoom]
    stopping: ClassVar[trio.Event]

    @classmethod
    def within(cls, room: BodyRoom, unread_room: UnreadRoom, stopping: trio.Event) -> "type[Connection]":
        """Connections of one application, which share room; when it is `stopping` no body is waited for."""
        return type("Connection", (cls,), {"room": room, "unread_room": unread_room, "stopping": stopping})

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer the request."""
        begin_s = trio.current_time()
        account = open_account()
        self._answering = False
        self._complete = False
        self._status: int | None = None
        self._body_ended = trio.Event()
        self._held_bytes = 0
        extras = cast(MutableMapping[str, object], self.scope)
        extras[_REQUEST_ID] = self._id = new_request_id()
        extras[_UNREAD] = self._unread = Unread(self.unread_room, self._cut)
        self.scope["path"] = _path(self.scope["path"])

        async def watched_send(event: ASGISendEvent) -> None:
            if event["type"] == "http.response.start":
                self._status = event["status"]
                await self._let_body_end()
            elif event["type"] == "http.response.body":
                self._unread.add(len(event.get("body", b"")))
                for piece in _pieces(event):
                    self._complete = not piece["more_body"]
                    await send(piece)
                    self._unread.take(len(piece["body"]))
                return
            await send(event)

        request = self._create_request_from_scope(watched_send)
        try:
            async with trio.open_nursery() as nursery:
                extras[_NURSERY] = self._nursery = nursery
                nursery.start_soon(self.handle_messages, nursery, request, receive)
                nursery.start_soon(self.handle_request, nursery, request, watched_send)
        finally:
            self.room.give_back(self._held_bytes)
            self._unread.clear()
            requests.info("%s", self._record(account, trio.current_time() - begin_s))

    def _record(self, account: Account, seconds: float) -> str:
        """One line: what was asked, what was answered. Nothing that a client wrote but method and path."""
        asked = f"{self.scope['method']} {self.scope['path'][:MOST_PATH_CHARS]}".encode("unicode_escape").decode()
        status = "no answer" if self._status is None else str(self._status)
        left = "" if self._complete else ", the client left"
        of = f" {told}" if (told := account.text()) else ""
        own_id = cast(MutableMapping[str, object], self.scope)[_REQUEST_ID]
        return f"{asked}: {status}{left}, {own_id}{of}, {seconds:.3f} s"

    async def handle_messages(  # type: ignore[override]
        self, nursery: trio.Nursery, request: Request, receive: ASGIReceiveCallable
    ) -> None:
        """Take in the body, then wait for the client's departure."""
        if await self._take_body(request, receive):
            while (await receive())["type"] == "http.request":
                pass  # of a body that was given up
        if not self._complete:
            nursery.cancel_scope.cancel()

    async def _take_body(self, request: Request, receive: ASGIReceiveCallable) -> bool:
        """Take in the body until it ends or nothing comes of it any more; false if the client leaves first."""
        while not self._body_ended.is_set():
            with trio.move_on_after(BODY_SILENCE_S) as silence:
                message = await receive()
            if silence.cancelled_caught:
                error = InvalidRequest(f"nothing came of the request body for {BODY_SILENCE_S} s", code="body_timeout")
                self._drop(request, error)
                return True
            if message["type"] != "http.request":
                return False
            if not self._answering:
                self._hold(request, message.get("body", b""))
            if not message.get("more_body", False):
                request.body.set_complete()
                self._body_ended.set()
        return True

    def _hold(self, request: Request, body: bytes) -> None:
        """Keep a piece of the body, or, where there is no room for it, let the view answer without the rest."""
        if dropped_body(request) is not None:
            return
        if self.room.take(len(body)):
            self._held_bytes += len(body)
            request.body.append(body)
        else:
            error = Overloaded("the bodies of the requests that are being answered take all the memory that they may")
            self._drop(request, error)

    def _drop(self, request: Request, error: RequestError) -> None:
        _extras(request)[_DROPPED] = error
        request.body.set_complete()

    def _cut(self, unread_bytes: int) -> None:
        if self._nursery.cancel_scope.cancel_called:
            return
        log.warning("request %s: cut, because its client left %d bytes of the answer unread", self._id, unread_bytes)
        self._nursery.cancel_scope.cancel()
        abort = self.scope.get("state", {}).get(ABORT)
        if abort is not None:
            abort()

    async def _let_body_end(self) -> None:
        """Read what is left of the body before an answer that did not need it (413, 404), and drop it.

        An answer before the end of its body is the last of its connection, and many a client reads none before it has
        sent everything. One that goes on for longer is answered while it sends.
        """
        self._answering = True
        if not self._body_ended.is_set():
            await trio.lowlevel.checkpoint()  # most bodies are here, and only have to be taken in
        if self._body_ended.is_set():
            return
        with trio.move_on_after(DRAIN_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_end, nursery, self._body_ended)
                nursery.start_soon(_end, nursery, self.stopping)


async def _end(nursery: trio.Nursery, event: trio.Event) -> None:
    await event.wait()
    nursery.cancel_scope.cancel()


def _pieces(event: HTTPResponseBodyEvent) -> Iterator[HTTPResponseBodyEvent]:
    """The event cut into writes that a client can be judged by."""
    body = event.get("body", b"")
    end = max(len(body), 1)
    for at in range(0, end, READ_BYTES):
        more = event.get("more_body", False) or at + READ_BYTES < end
        yield {"type": "http.response.body", "body": body[at : at + READ_BYTES], "more_body": more}
