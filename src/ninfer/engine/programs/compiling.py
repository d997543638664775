"""Programs compiled side by side: lowered one after the other by the caller, compiled by a few threads.

Lowering is Python and holds the interpreter; XLA's compiler lets go of it. Knows neither models nor devices: a program
is a name and a function that lowers it. Invariants: results, progress and the error that is raised are those of
compiling one after the other, however many threads there are; when it is over, none of them is left.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Generic, Protocol, TypeVar

import attrs

from ninfer.engine.deep_stack import start_deep

MOST_THREADS = 8
"""A large program takes a gigabyte or two of host memory to compile, and XLA has threads of its own for parts of it."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Lowered(Protocol[T_co]):
    """What is left to compile."""

    def compile(self) -> T_co:
        """Compile it. Blocks."""
        ...


@attrs.frozen
class Source(Generic[T]):
    """A program before it is lowered."""

    name: str
    lower: Callable[[], Lowered[T]]


@attrs.frozen
class Built(Generic[T]):
    """A compiled program."""

    name: str
    program: T
    compile_s: float
    """Lowering and compiling, without the wait for a thread; side by side these times overlap."""


def threads_here() -> int:
    """How many threads are worth it on this machine: one a core. Two of them on two cores took 20 % less time."""
    return min(MOST_THREADS, len(os.sched_getaffinity(0)))


def build(sources: Sequence[Source[T]], *, threads: int, waiting: Callable[[str, int], None]) -> list[Built[T]]:
    """Compile all of them, in the given order or side by side.

    Args:
        threads: with 1 the caller compiles by itself, each program before the next one is lowered.
        waiting: told each name once, in order, with the number of programs before it, when nothing before it is
            missing any more.

    Raises:
        Exception: what was raised for the first program, in order, that failed. Compilations that have begun are waited
            for, since nothing stops a compiler; no other is begun.
    """
    if threads == 1:
        alone = []
        for index, source in enumerate(sources):
            waiting(source.name, index)
            alone.append(_lower(source)())
        return alone
    crew: _Crew[Built[T]] = _Crew(min(threads, len(sources)))
    try:
        built: list[Built[T]] = []
        for index, future in enumerate(_begin(crew, sources, waiting)):
            if index > 0:
                waiting(sources[index].name, index)
            built.append(future.result())
        return built
    finally:
        crew.dismiss()


def _begin(
    crew: "_Crew[Built[T]]", sources: Sequence[Source[T]], waiting: Callable[[str, int], None]
) -> "list[Future[Built[T]]]":
    """Lower and hand over, up to the first failure; the last result may be an error of lowering."""
    futures: list[Future[Built[T]]] = []
    for index, source in enumerate(sources):
        if index == 0:
            waiting(source.name, 0)
        if crew.failed:
            break
        try:
            futures.append(crew.submit(_lower(source)))
        except Exception as error:  # of programs before it there may be one that comes first
            futures.append(Future())
            futures[-1].set_exception(error)
            break
    return futures


def _lower(source: Source[T]) -> "_Compilation[T]":
    begin_s = time.monotonic()
    lowered = source.lower()
    return _Compilation(source.name, lowered, time.monotonic() - begin_s)


@attrs.frozen
class _Compilation(Generic[T]):
    """A program that is lowered: the part that leaves the interpreter to others."""

    name: str
    lowered: Lowered[T]
    lower_s: float

    def __call__(self) -> Built[T]:
        begin_s = time.monotonic()
        program = self.lowered.compile()
        return Built(self.name, program, self.lower_s + time.monotonic() - begin_s)


class _Crew(Generic[T]):
    """Threads that do what they are given, in that order; nothing that comes after a failure is begun."""

    def __init__(self, threads: int) -> None:
        self._work: SimpleQueue[tuple[int, Callable[[], T], Future[T]] | None] = SimpleQueue()
        self._given = 0
        self._dismissed = False
        self._failures: list[int] = []
        # Daemons: a process that has to end does not wait for a compiler.
        self._threads = [
            Thread(target=self._run, name=f"ninfer-compiler-{number}", daemon=True) for number in range(threads)
        ]
        start_deep(*self._threads)

    @property
    def failed(self) -> bool:
        """Whether anything has failed so far."""
        return bool(self._failures)

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        """Have it done. What is given before a failure is done in the end; what comes after it may not be."""
        future: Future[T] = Future()
        self._work.put((self._given, call, future))
        self._given += 1
        return future

    def dismiss(self) -> None:
        """Begin nothing more, and wait for what has begun."""
        self._dismissed = True
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            number, call, future = item
            if self._dismissed or any(failure < number for failure in self._failures):
                continue  # nobody asks for it: the error before it comes first
            try:
                future.set_result(call())
            except BaseException as error:  # handed on, whatever it is
                self._failures.append(number)
                future.set_exception(error)
