"""`python -m ninfer.sandbox FD BYTES`: renders one foreign template for the process at the other end of a socket.

First the template's source comes, then one request after the other. The system ends this process when it takes more
memory than BYTES or works longer than a request allows; when the other end is gone, it ends by itself.
"""

import contextlib
import resource
import signal
import socket
import sys
from collections.abc import Callable

from ninfer.sandbox.environment import BadSource, Compiled, Refused
from ninfer.sandbox.frames import Answer, Kind, Render, receive_request, send_answer


def main(descriptor: int, memory_bytes: int) -> None:
    """Serve until the other end closes, or memory runs out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to every process; the server decides
    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    with socket.socket(fileno=descriptor) as wire, wire.makefile("rb") as incoming:

        def receive(size: int) -> bytes:
            data = incoming.read(size)
            if len(data) < size:
                raise EOFError
            return data

        compiled: list[Compiled] = []

        def answer(request: object) -> Answer:
            if compiled:
                return _rendered(compiled[0], Render.of_plain(request))
            compiled.append(Compiled(str(request)))
            return Answer(Kind.DONE, "\n".join(sorted(compiled[0].variables)))

        with contextlib.suppress(EOFError, OSError):
            while _answered(wire.sendall, lambda: answer(receive_request(receive))):
                pass


def _answered(send: Callable[[bytes], object], work: Callable[[], Answer]) -> bool:
    """Send what comes of `work`; whether this process is fit for more."""
    try:
        send_answer(send, work())
    except BadSource as error:
        send_answer(send, Answer(Kind.BAD_SOURCE, str(error)))
    except Refused as error:
        send_answer(send, Answer(Kind.REFUSED, str(error)))
    except UnicodeEncodeError:
        send_answer(send, Answer(Kind.REFUSED, "it writes half a character"))
    except MemoryError:
        send_answer(send, Answer(Kind.NO_MEMORY))
        return False
    return True


def _rendered(template: Compiled, request: Render) -> Answer:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + request.cpu_s + 1)
    pieces: list[str] = []
    chars = 0
    for piece in template.pieces(request.variables):
        if piece:
            pieces.append(piece)
            chars += len(piece)
        if chars > request.most_chars:
            return Answer(Kind.TOO_LONG)
    return Answer(Kind.DONE, "".join(pieces))


def _limit(kind: int, amount: int) -> None:
    """Set a limit, or leave a stronger one; a system without it has nothing to enforce it with."""
    _, hard = resource.getrlimit(kind)
    soft = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (soft, hard))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
