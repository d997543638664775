"""The way of a stream's frames from a protocol's handler to the socket.

The handler puts frames and never waits for the client, the response body takes those that are ready as one piece. It
knows bytes and not what they mean. Invariant: the bytes taken, keep-alives left out, are the bytes put, in order.
"""

import math
from collections import deque
from types import TracebackType

import trio
from quart.wrappers.response import ResponseBody

from ninfer.server.unread import READ_BYTES, Unread


class FrameQueue:
    """A queue of frames with one producer and one consumer; what it holds is counted in `unread`."""

    def __init__(self, unread: Unread) -> None:
        self._unread = unread
        self._frames: deque[bytes] = deque()
        self._since_yield_bytes = 0
        self._closed = False
        self._consumer = trio.lowlevel.ParkingLot()

    async def put(self, frame: bytes) -> None:
        """Queue one frame."""
        self.put_now(frame)
        self._since_yield_bytes += len(frame)
        if self._since_yield_bytes > READ_BYTES:
            self._since_yield_bytes = 0
            await trio.lowlevel.checkpoint()  # a handler that never waits lets others go on
        else:
            await trio.lowlevel.checkpoint_if_cancelled()

    def put_now(self, frame: bytes) -> None:
        """As `put`, without a checkpoint."""
        self._frames.append(frame)
        self._consumer.unpark_all()
        self._unread.add_to_stream(len(frame))

    def close(self) -> None:
        """No frame comes any more. Idempotent."""
        self._closed = True
        self._consumer.unpark_all()

    async def take(self) -> bytes:
        """Frames that are ready, joined to no more than one write; empty when the queue is closed and drained."""
        await trio.lowlevel.checkpoint()  # a producer with more to put comes first: larger pieces, fewer writes
        while not self._frames:
            if self._closed:
                return b""
            await self._consumer.park()
        frames = [self._frames.popleft()]
        size = len(frames[0])
        while self._frames and size + len(self._frames[0]) <= READ_BYTES:
            frames.append(self._frames.popleft())
            size += len(frames[-1])
        self._unread.take(size)
        return b"".join(frames)


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
