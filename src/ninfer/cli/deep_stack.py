"""Work on a thread with the stack that a compiler needs, as the engine's device thread has it."""

import threading
from collections.abc import Callable
from typing import TypeVar

from ninfer.engine.deep_stack import start_deep

_T = TypeVar("_T")


def in_thread(work: Callable[[], _T], *, name: str) -> _T:
    """Run `work` on a thread called `name`, wait for it, and return or raise what it does."""
    done: list[_T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # handed on, whatever it is
            failed.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    start_deep(thread)
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
