"""Work on a thread with the stack that a compiler needs, as the engine's device thread has it."""

import threading
from collections.abc import Callable
from typing import TypeVar

from ninfer.engine.engine import STACK_BYTES

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

    before = threading.stack_size(STACK_BYTES)
    try:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
