"""A client that costs as little as possible: sockets, one selector, and counting instead of parsing.

It knows that an event ends with a blank line and that a stream ends with `[DONE]`; it checks the status line and
nothing else. Times are seconds of `time.perf_counter`.
"""

import json
import selectors
import socket
import time

import attrs

READ_BYTES = 1 << 18
DONE = b"data: [DONE]\n\n"
FIRST_TEXT = b'"content":" '


class BadAnswer(Exception):
    """The server said something else than 200 and a stream."""


def request_bytes(events: int, *, prompt_bytes: int, model: str) -> bytes:
    """A streamed Chat request that asks for `events` text events after a prompt of about `prompt_bytes`."""
    text = "word " * (prompt_bytes // 5) + f"[[pad:{events}]]"
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "stream": True,
            "max_tokens": 1_000_000,
            "enable_thinking": False,
        }
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@attrs.define
class Stream:
    """One answer on its way in."""

    sent_s: float
    first_text_s: float | None = None
    events: int = 0
    pieces: int = 0
    """HTTP chunks that begin with an event: how often the server wrote."""
    complete: bool = False
    _head: bytes = b""
    _tail: bytes = b""

    @property
    def ended(self) -> bool:
        """Whether the body's last chunk is in as well, so that the connection can be used again."""
        return self.complete and self._tail.endswith(b"\r\n0\r\n\r\n")

    def feed(self, data: bytes, now_s: float) -> None:
        """Count what came."""
        if self.first_text_s is None:
            self._head += data
            if not self._head.startswith(b"HTTP/1.1 200"[: len(self._head)]):
                raise BadAnswer(self._head[:300].decode(errors="replace"))
            if FIRST_TEXT in self._head:
                self.first_text_s = now_s
        joined = self._tail + data
        # The tail is what an event's or a chunk's border may be cut in; what lies whole in it was counted before.
        self.events += joined.count(b"\n\n") - self._tail.count(b"\n\n")
        self.pieces += joined.count(b"\r\ndata: ") - self._tail.count(b"\r\ndata: ")
        self._tail = joined[-len(DONE) - 16 :]
        self.complete = DONE in self._tail


def first_token_s(port: int, request: bytes, repeats: int) -> list[float]:
    """Seconds from sending to the first text, one request after the other on one connection."""
    times = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(repeats):
            stream = Stream(time.perf_counter())
            connection.sendall(request)
            while not (stream.ended):
                data = connection.recv(READ_BYTES)
                if not data:
                    raise BadAnswer("closed")
                stream.feed(data, time.perf_counter())
            if stream.first_text_s is None:
                raise BadAnswer("a stream without text")
            times.append(stream.first_text_s - stream.sent_s)
    return times


@attrs.frozen
class Rate:
    """What some streams together carried."""

    events_per_s: float
    events_per_piece: float


def event_rate(port: int, request: bytes, streams: int) -> Rate:
    """Events per second over `streams` parallel streams, from the first request to the last end."""
    selector = selectors.DefaultSelector()
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(streams)]
    started_s = time.perf_counter()
    answers = []
    for connection in connections:
        connection.sendall(request)
        answers.append(Stream(time.perf_counter()))
        selector.register(connection, selectors.EVENT_READ, answers[-1])
    open_streams = streams
    while open_streams:
        for key, _ in selector.select():
            answer = key.data
            assert isinstance(key.fileobj, socket.socket)
            data = key.fileobj.recv(READ_BYTES)
            if not data:
                raise BadAnswer("closed")
            answer.feed(data, time.perf_counter())
            if answer.complete:
                selector.unregister(key.fileobj)
                open_streams -= 1
    seconds = time.perf_counter() - started_s
    for connection in connections:
        connection.close()
    selector.close()
    events = sum(answer.events for answer in answers)
    return Rate(events / seconds, events / sum(answer.pieces for answer in answers))
