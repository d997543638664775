"""The other end of a rendering process: starts one, asks it, ends it.

The process is a fresh interpreter, never a copy of this one, since it must not have the threads and the device. A
caller waits no longer than it says; a process that has not answered by then is killed. It knows no pool and no errors
of requests.
"""

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping

from ninfer.sandbox.frames import Answer, BrokenFrame, Kind, Render, receive_answer, send_request

MEMORY_BYTES = 1 << 30
"""Address space of a rendering process, the interpreter included."""

_REASON_BYTES = 1 << 16
"""More than any reason or list of names takes."""

_UTF8_BYTES = 4
"""Most bytes of a character."""


class TookTooLong(Exception):
    """There was no answer in time. The process is killed."""


class Ended(Exception):
    """The process ended instead of answering; the message says how."""


class RenderingProcess:
    """One process for one template: `compile` first. For one thread at a time, but `kill` may come from any.

    A process that was killed is closed; so is one that has run out of memory.
    """

    def __init__(self) -> None:
        """Start a process.

        Raises:
            OSError: the system starts none.
        """
        self._wire, theirs = socket.socketpair()
        with theirs:
            # -P and the path: what this process imports is found there, and nothing in the working folder besides.
            arguments = ["-P", "-m", "ninfer.sandbox", str(theirs.fileno()), str(MEMORY_BYTES)]
            path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path if folder)
            try:
                self._process = subprocess.Popen(
                    [sys.executable, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": path},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except BaseException:
                self._wire.close()
                raise

    def compile(self, source: str, *, seconds: float) -> Answer:
        """Compile the template; the answer names the variables that it reads, one a line.

        Raises:
            TookTooLong: there was no answer within `seconds`.
            Ended: it is gone; `kill` was called, or it ended by itself.
        """
        return self._ask(source, seconds=seconds, most_bytes=_REASON_BYTES + _UTF8_BYTES * len(source))

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self._process.poll() is None

    def render(self, variables: Mapping[str, object], *, most_chars: int, seconds: float) -> Answer:
        """Render `variables`, which are plain JSON values; raises what `compile` raises."""
        request = Render(variables=variables, most_chars=most_chars, cpu_s=math.ceil(seconds))
        return self._ask(request.to_plain(), seconds=seconds, most_bytes=_REASON_BYTES + _UTF8_BYTES * most_chars)

    def kill(self) -> None:
        """End it now, whatever it does; a caller that waits for it gets an error."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def close(self) -> None:
        """End it and give back what it holds."""
        self.kill()
        self._wire.close()
        self._process.wait()

    def _ask(self, request: object, *, seconds: float, most_bytes: int) -> Answer:
        deadline_s = time.monotonic() + seconds

        def set_clock() -> None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._wire.settimeout(left_s)

        def send(data: bytes) -> None:
            set_clock()
            self._wire.sendall(data)

        def receive(size: int) -> bytes:
            data = bytearray(size)
            rest = memoryview(data)
            while rest:
                set_clock()
                received = self._wire.recv_into(rest)
                if not received:
                    raise EOFError
                rest = rest[received:]
            return bytes(data)

        try:
            send_request(send, request)
            answer = receive_answer(receive, most_bytes=most_bytes)
        except TimeoutError:
            self.close()
            raise TookTooLong from None
        except (EOFError, BrokenFrame, OSError) as error:
            self.close()
            raise Ended(f"the process that renders it ended {self._how(error)}") from None
        except BaseException:  # a signal in the main thread, in the middle of an answer
            self.close()
            raise
        if answer.kind is Kind.NO_MEMORY:
            self.close()
        return answer

    def _how(self, error: Exception) -> str:
        status = self._process.returncode
        if isinstance(error, BrokenFrame):
            return f"with a broken answer: {error}"
        return f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
