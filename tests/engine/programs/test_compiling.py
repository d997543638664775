"""Programs compiled by threads: the same results, progress and errors as one after the other. Compilers are fakes."""

import threading
from collections.abc import Callable, Sequence

import attrs
import pytest

from ninfer.engine.programs.compiling import Source, build, threads_here

HANG_S = 60
"""A test that would wait longer has failed."""


@attrs.frozen
class Lowered:
    """A program whose compilation is a function."""

    compile: Callable[[], str]


def said(text: str) -> Callable[[], str]:
    return lambda: text


def broken(text: str) -> Callable[[], str]:
    def compile_() -> str:
        raise RuntimeError(text)

    return compile_


def built(compilers: Sequence[Callable[[], str]], threads: int) -> tuple[list[str], list[tuple[str, int]]]:
    """What came out, and the progress that was told."""
    told: list[tuple[str, int]] = []
    sources = [Source(f"program {n}", lambda c=compiler: Lowered(c)) for n, compiler in enumerate(compilers)]  # type: ignore[misc]
    found = build(sources, threads=threads, waiting=lambda name, done: told.append((name, done)))
    assert [one.name for one in found] == [name for name, _ in told]
    assert all(one.compile_s >= 0 for one in found)
    return [one.program for one in found], told


def compilers_alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ninfer-compiler")]


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_results_and_progress_come_in_order(threads: int) -> None:
    programs, told = built([said("a"), said("b"), said("c")], threads)
    assert programs == ["a", "b", "c"]
    assert told == [("program 0", 0), ("program 1", 1), ("program 2", 2)]
    assert compilers_alive() == []


def test_they_run_side_by_side_and_the_later_one_may_end_first() -> None:
    second_is_done = threading.Event()

    def first() -> str:
        assert second_is_done.wait(HANG_S)
        return "first"

    def second() -> str:
        second_is_done.set()
        return "second"

    assert built([first, second], 2)[0] == ["first", "second"]


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_first_error_in_order_is_the_one_that_is_raised(threads: int) -> None:
    with pytest.raises(RuntimeError, match="early"):
        built([said("a"), broken("early"), said("c"), broken("late")], threads)
    assert compilers_alive() == []


def test_an_error_that_comes_first_in_time_waits_for_those_before_it() -> None:
    late_has_failed = threading.Event()
    begun: list[str] = []

    def early() -> str:
        assert late_has_failed.wait(HANG_S)
        raise RuntimeError("early")

    def late() -> str:
        late_has_failed.set()
        raise RuntimeError("late")

    def never() -> str:
        begun.append("never")
        return "never"

    told: list[str] = []

    def lower_after_the_failure() -> Lowered:
        assert late_has_failed.wait(HANG_S)
        return Lowered(never)

    sources = [
        Source("early", lambda: Lowered(early)),
        Source("late", lambda: Lowered(late)),
        Source("never", lower_after_the_failure),
    ]
    with pytest.raises(RuntimeError, match="early"):
        build(sources, threads=2, waiting=lambda name, done: told.append(name))
    assert told == ["early"]
    assert begun == []
    assert compilers_alive() == []


@pytest.mark.parametrize("threads", [1, 2])
def test_a_program_that_cannot_be_lowered(threads: int) -> None:
    def refuse() -> Lowered:
        raise NotImplementedError("no such kernel")

    sources = [Source("good", lambda: Lowered(said("good"))), Source("bad", refuse), Source("more", refuse)]
    with pytest.raises(NotImplementedError, match="no such kernel"):
        build(sources, threads=threads, waiting=lambda name, done: None)
    sources[0] = Source("broken", lambda: Lowered(broken("it comes first")))
    with pytest.raises(RuntimeError, match="it comes first"):
        build(sources, threads=threads, waiting=lambda name, done: None)
    assert compilers_alive() == []


def test_nothing_to_compile() -> None:
    assert built([], 1) == built([], 4) == ([], [])


def test_how_many_threads() -> None:
    assert 1 <= threads_here() <= 8
