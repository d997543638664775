"""A few threads that do what they are given and are gone afterwards. Knows nothing of what they do.

Invariant: work begins in the order in which it was given; once something has failed, nothing that was given after it
begins. A thread that has begun cannot be stopped, so whoever leaves waits for it.
"""

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import TypeVar

from ninfer.engine.deep_stack import start_deep

T = TypeVar("T")


class Crew:
    """Threads with a deep stack, as a block: leaving it drops what has not begun and waits for what has."""

    def __init__(self, threads: int, *, name: str) -> None:
        """`name`: what the threads are called, with a number behind it."""
        self._work: SimpleQueue[tuple[int, Callable[[], None]] | None] = SimpleQueue()
        self._given = 0
        self._dismissed = False
        self._failures: list[int] = []
        # Daemons: a process that has to end does not wait for a compiler.
        self._threads = [Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(threads)]

    def __enter__(self) -> "Crew":
        start_deep(*self._threads)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dismissed = True
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    @property
    def failed(self) -> bool:
        """Whether anything has failed so far."""
        return bool(self._failures)

    def give(self, call: Callable[[], T]) -> "Future[T]":
        """Have it done. What is given before a failure is done in the end; what comes after it may not be."""
        future: Future[T] = Future()
        number, self._given = self._given, self._given + 1

        def work() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # handed on, whatever it is
                self._failures.append(number)  # before anybody can see it
                future.set_exception(error)

        self._work.put((number, work))
        return future

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            number, work = item
            if not self._dismissed and all(number < failure for failure in self._failures):
                work()
