"""Programs compiled side by side: lowered one after the other by the caller, compiled by a few threads.

Lowering is Python and holds the interpreter; XLA's compiler lets go of it. Knows neither models nor devices: a program
is a name and a function that lowers it. Invariants: results, progress and the error that is raised are those of
compiling one after the other, however many threads there are; when it is over, none of them is left.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

import attrs

from ninfer.engine.programs.crew import Crew

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
    with Crew(min(threads, len(sources)), name="ninfer-compiler") as crew:
        built: list[Built[T]] = []
        for index, future in enumerate(_begin(crew, sources, waiting)):
            if index > 0:
                waiting(sources[index].name, index)
            built.append(future.result())
        return built


def _begin(crew: Crew, sources: Sequence[Source[T]], waiting: Callable[[str, int], None]) -> "list[Future[Built[T]]]":
    """Lower and hand over, up to the first failure; the last result may be an error of lowering."""
    futures: list[Future[Built[T]]] = []
    for index, source in enumerate(sources):
        if index == 0:
            waiting(source.name, 0)
        if crew.failed:
            break
        try:
            futures.append(crew.give(_lower(source)))
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
