"""A rendering process: what it answers, what its limits end, and that nothing of it is left."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ninfer.sandbox.frames import Answer, BrokenFrame, Kind, receive_answer
from ninfer.sandbox.process import Ended, RenderingProcess, TookTooLong

PATIENT_S = 30.0
SHORT_S = 0.5
FOREVER = "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = a %}{% endfor %}{% endfor %}"


@contextmanager
def process(source: str) -> Iterator[RenderingProcess]:
    started = RenderingProcess()
    try:
        assert started.compile(source, seconds=PATIENT_S).kind is Kind.DONE
        yield started
    finally:
        started.close()


def test_one_process_renders_again_and_again() -> None:
    with process("{{ x | tojson }}{{ y }}") as one:
        for text in ("é\U0001f600", "x" * 1_000_000, "", "\ue000"):
            value = {text: [1, 2.5, None, True, float("inf"), 1 << 70]}
            answer = one.render({"x": value, "y": text}, most_chars=1 << 22, seconds=PATIENT_S)
            assert answer.kind is Kind.DONE
            assert answer.text.endswith(f"[1, 2.5, null, true, Infinity, {1 << 70}]}}{text}")
        assert one.alive


def test_the_names_that_a_template_reads_and_reasons() -> None:
    started = RenderingProcess()
    assert started.compile("{{ b }}{% set a = 1 %}{{ a }}{{ c }}", seconds=PATIENT_S) == Answer(Kind.DONE, "b\nc")
    started.close()
    started = RenderingProcess()
    assert started.compile("{% if %}", seconds=PATIENT_S).kind is Kind.BAD_SOURCE
    started.close()
    with process("{{ raise_exception('no\nlike this') }}") as one:
        assert one.render({}, most_chars=9, seconds=PATIENT_S) == Answer(Kind.REFUSED, "no\nlike this")
    with process("{{ '%c' % 55357 }}") as one:
        assert one.render({}, most_chars=9, seconds=PATIENT_S).kind is Kind.REFUSED
        assert one.alive


def test_output_is_bounded_where_it_is_made() -> None:
    with process("{% for a in range(99999) %}{% for b in range(99999) %}xyz{% endfor %}{% endfor %}") as one:
        assert one.render({}, most_chars=1000, seconds=PATIENT_S).kind is Kind.TOO_LONG
        assert one.alive


def test_what_does_not_answer_is_killed() -> None:
    with process(FOREVER) as one:
        with pytest.raises(TookTooLong):
            one.render({}, most_chars=9, seconds=SHORT_S)
        assert not one.alive


def test_memory_is_bounded() -> None:
    with process("{{ '%2000000000d' % x }}") as one:
        assert one.render({"x": 1}, most_chars=9, seconds=PATIENT_S).kind is Kind.NO_MEMORY
        assert not one.alive


def test_a_death_is_told() -> None:
    with process("x") as one:
        os.kill(one.pid, signal.SIGSEGV)
        with pytest.raises(Ended, match="SIGSEGV"):
            one.render({}, most_chars=9, seconds=PATIENT_S)
        assert not one.alive


def test_a_terminals_interrupt_is_not_for_it() -> None:
    with process("x") as one:
        assert os.getsid(one.pid) != os.getsid(0)
        os.kill(one.pid, signal.SIGINT)
        assert one.render({}, most_chars=9, seconds=PATIENT_S) == Answer(Kind.DONE, "x")


def test_it_ends_with_whoever_started_it() -> None:
    script = (
        "from ninfer.sandbox.process import RenderingProcess as P; import os; p = P(); p.compile('x', seconds=30);"
        "print(p.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    started = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    assert started.returncode == -signal.SIGKILL
    pid = int(started.stdout)
    with contextlib.suppress(ProcessLookupError), os.fdopen(os.pidfd_open(pid)) as ended:
        assert select.select([ended], [], [], PATIENT_S)[0]  # readable as soon as the process has ended


def test_it_imports_nothing_of_ours() -> None:
    script = (
        "import sys, ninfer.sandbox.__main__; names = {name for name in sys.modules};"
        "foreign = ('ninfer', 'jax', 'numpy', 'trio', 'tokenizers', 'attrs', 'quart');"
        "print(*sorted(name for name in names if name.split('.')[0] in foreign))"
    )
    found = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True).stdout.decode().split()
    ours = ("__main__", "environment", "frames")
    assert found == ["ninfer", "ninfer.sandbox", *(f"ninfer.sandbox.{name}" for name in ours)]


@pytest.mark.parametrize(
    "data", [b"?" + bytes(8), b"d" + b"\xff" * 8, b"d\x02" + bytes(7) + b"\xff\xff"], ids=["kind", "size", "text"]
)
def test_an_answer_can_be_nothing_but_text(data: bytes) -> None:
    rest = [data]

    def receive(size: int) -> bytes:
        head, rest[0] = rest[0][:size], rest[0][size:]
        return head

    with pytest.raises(BrokenFrame):
        receive_answer(receive, most_bytes=100)
