"""The way of a stream's frames from a protocol's handler to the socket.

The handler puts frames, the response body takes all that are ready as one piece. It knows bytes and nothing of what
they mean. Invariant: the bytes taken, keep-alives left out, are the bytes put, in order.
"""

import math
from collections import deque
from types import TracebackType

import trio
from quart.wrappers.response import ResponseBody

ROOM_BYTES = 1 << 16
"""Bytes that may wait here before the handler is held back; the sockets' own buffers come on top."""


class FrameQueue:
    """A bounded queue of frames with one producer and one consumer."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._closed = False
        self._consumer = trio.lowlevel.ParkingLot()
        self._producer = trio.lowlevel.ParkingLot()

    async def put(self, frame: bytes) -> None:
        """Queue one frame; waits while the queue is full."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._queued_bytes >= ROOM_BYTES:
            await self._producer.park()
        self.put_now(frame)

    def put_now(self, frame: bytes) -> None:
        """Queue one frame whatever the queue holds already: for the last frame of a failed stream."""
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        self._consumer.unpark_all()

    def close(self) -> None:
        """No frame comes any more. Idempotent."""
        self._closed = True
        self._consumer.unpark_all()

    async def take(self) -> bytes:
        """All frames that are ready, joined; empty when the queue is closed and drained."""
        await trio.lowlevel.checkpoint()  # a producer with more to put comes first: larger pieces, fewer writes
        while not self._frames:
            if self._closed:
                return b""
            await self._consumer.park()
        piece = b"".join(self._frames)
        self._frames.clear()
        self._queued_bytes = 0
        self._producer.unpark_all()
        return piece


class FrameBody(ResponseBody):
    """A stream as the body of a Quart response: frames, and `keep_alive`, if there is one, after each silence.

    No async generator on purpose: the framework closes those at moments when nothing may be awaited any more.
    """

    def __init__(self, queue: FrameQueue, *, keep_alive: bytes | None, keep_alive_s: float, silent: bool) -> None:
        """`silent`: the stream begins with a keep-alive, because its first frame has not come in time."""
        self._queue = queue
        self._keep_alive = keep_alive or b""
        self._silence_s = math.inf if keep_alive is None else keep_alive_s
        self._due = silent

    async def __aenter__(self) -> "FrameBody":
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._queue.close()

    def __aiter__(self) -> "FrameBody":
        return self

    async def __anext__(self) -> bytes:
        if self._due:
            self._due = False
            await trio.lowlevel.checkpoint()
            return self._keep_alive
        piece = self._keep_alive
        with trio.move_on_after(self._silence_s):
            piece = await self._queue.take()
        if not piece:
            raise StopAsyncIteration
        return piece
