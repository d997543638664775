"""What a long command says while it works, on a terminal and elsewhere."""

import io

from rich.console import Console

from ninfer.cli.telling import telling


def test_elsewhere_each_step_is_a_line() -> None:
    said = io.StringIO()
    with telling(Console(file=said, width=20)) as tell:
        tell("one [b]step[/b] that is longer than the console")
        tell("another")
    assert said.getvalue() == "one [b]step[/b] that is longer than the console\nanother\n"


def test_on_a_terminal_a_line_moves_and_goes() -> None:
    said = io.StringIO()
    with telling(Console(file=said, width=80, force_terminal=True)) as tell:
        tell("one [b]step[/b]")
    shown = said.getvalue()
    assert "one [b]step[/b]" in shown
    assert shown.endswith("\x1b[2K"), "the line is taken away"
