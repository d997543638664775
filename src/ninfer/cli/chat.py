"""`python -m ninfer chat`: talk to a running server, a line at a time.

A line is what the user says; lines that begin with a slash are commands. The answer is shown as it comes, reasoning
dimmed. It loads no model and knows no tokens. Invariant: the conversation holds whole turns only; one that was
interrupted or refused leaves it as it was.
"""

import contextlib
import io
import re
import sys
from collections.abc import Callable
from typing import Annotated, TypeAlias

import attrs
from cyclopts import Parameter
from rich.console import Console

from ninfer.cli.chat_server import ChatServer, Message, ServerSaid
from ninfer.cli.failure import Failure
from ninfer.cli.options import DEFAULT_URL, is_utf8, name_text, utf8_text

COMMANDS = "/system TEXT sets the system prompt, /reset forgets the conversation, /quit ends; Ctrl+C stops an answer"
THINGS_TO_SAY = (
    "What is 768 + 457?",
    "Write a short story about a mouse named Pim.",
    "Tom works in Oslo and has a boat called Gull. Where does Tom work?",
)
"""What even the demonstration model answers well."""
_CUT = {"length": "the answer was cut at its output limit"}

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

ReadLine: TypeAlias = Callable[[], str]
"""Asks the user for a line; raises EOFError where there is none."""


def chat(
    *,
    url: Annotated[str, Parameter(help="Where the server is.", validator=name_text)] = DEFAULT_URL,
    model: Annotated[
        str | None, Parameter(help="Model id; without it the server's first.", validator=name_text)
    ] = None,
    system: Annotated[str | None, Parameter(help="System prompt to begin with.", validator=utf8_text)] = None,
    no_thinking: Annotated[bool, Parameter(negative=(), help="Ask for answers without reasoning.")] = False,
    api_key: Annotated[
        str | None, Parameter(env_var="NINFER_API_KEY", help="The key, if the server asks for one.")
    ] = None,
) -> None:
    """Talk to a running server: /system TEXT, /reset, /quit."""
    console = Console(highlight=False)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # one bad line is no reason to end
    try:
        with ChatServer(url, api_key=api_key) as server:
            talk = Talk(
                server=server,
                console=console,
                model=_known(server, model),
                system=system,
                fields={"enable_thinking": False} if no_thinking else {},
            )
            if sys.stdin.isatty():
                with contextlib.suppress(ImportError):
                    import readline  # noqa: F401 - gives input() history and editing
                console.print(f"{talk.model} at {server.url}. {COMMANDS}.", style="dim", markup=False)
                console.print(f"Try: {' - '.join(THINGS_TO_SAY)}", style="dim", markup=False)
            talk.run(lambda: input("> " if sys.stdin.isatty() else ""))
    except ServerSaid as error:
        raise Failure(str(error)) from error


def _known(server: ChatServer, model: str | None) -> str:
    """The model that is meant. The server is asked in any case: one that is not there is told before the first line."""
    models = server.models()
    if not models:
        raise ServerSaid(f"{server.url}: the server has no model")
    if model is not None and model not in models:
        raise ServerSaid(f"--model {model}: {server.url} has {', '.join(models)}")
    return model or models[0]


def printable(text: str) -> str:
    """`text` without what a terminal would obey: a model's output is not to be trusted with the screen."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


@attrs.define(kw_only=True)
class Talk:
    """A conversation between the user and a server."""

    server: ChatServer
    console: Console
    model: str
    system: str | None = None
    fields: dict[str, object] = attrs.field(factory=dict)
    """Further members of every request."""
    turns: list[Message] = attrs.field(factory=list)

    def run(self, read_line: ReadLine) -> None:
        """Take lines until /quit or the end of the input."""
        with contextlib.suppress(EOFError):
            while self.take(read_line().strip()):
                pass

    def take(self, line: str) -> bool:
        """Do what one line says; false when it says to end."""
        if not is_utf8(line):
            self._note("That line is not UTF-8, and is left out.")
            return True
        command, _, rest = line.partition(" ")
        match command:
            case "":
                pass
            case "/quit":
                return False
            case "/reset":
                self.turns.clear()
                self._note("The conversation is forgotten.")
            case "/system":
                self.system = rest.strip() or None
                self._note("The system prompt is set." if self.system else "There is no system prompt.")
            case _ if command.startswith("/"):
                self._note(f"There is no {command}. {COMMANDS}.")
            case _:
                self._say(line)
        return True

    def _say(self, line: str) -> None:
        asked: Message = {"role": "user", "content": line}
        try:
            answered = self._answer([*self.turns, asked])
        except ServerSaid as error:
            self._note(f"{error}. This turn is left out.", style="red")
        except KeyboardInterrupt:
            self._note("Stopped. This turn is left out.")
        else:
            self.turns += [asked, answered]

    def _answer(self, turns: list[Message]) -> Message:
        """Show the answer to `turns` as it comes; the turn that it makes."""
        lead: list[Message] = [] if self.system is None else [{"role": "system", "content": self.system}]
        said = {"answer": "", "reasoning": ""}
        reason: str | None = None
        shown = ""
        try:
            with contextlib.closing(self.server.answer(self.model, [*lead, *turns], self.fields)) as pieces:
                for piece in pieces:
                    if piece.channel == "answer" and piece.text and said["reasoning"] and not said["answer"]:
                        self._show("" if shown.endswith("\n") else "\n")
                    said[piece.channel] += piece.text
                    reason = piece.finish_reason or reason
                    shown = piece.text or shown
                    self._show(piece.text, style="dim" if piece.channel == "reasoning" else None)
        finally:
            self._show("" if not shown or shown.endswith("\n") else "\n")
        if reason in _CUT:
            self._note(f"({_CUT[reason]})")
        turn: dict[str, str] = {"role": "assistant", "content": said["answer"]}
        return {**turn, "reasoning_content": said["reasoning"]} if said["reasoning"] else turn

    def _show(self, text: str, style: str | None = None) -> None:
        if text:
            self.console.print(printable(text), end="", style=style, markup=False, soft_wrap=True)
            self.console.file.flush()

    def _note(self, text: str, style: str = "dim") -> None:
        self.console.print(printable(text), style=style, markup=False, soft_wrap=True)
