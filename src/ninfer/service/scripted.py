"""The part of the directive language (D37) that no engine can do: refusals by status, and thinking that was asked for.

`[[err:STATUS:CODE]]` is raised as the request error that protocols answer with this status. A request that asks for
reasoning itself has `[[think]]` added to the turn with its directives. All else is the scripted engine's. For
`--engine scripted` only; knows no wire names. Invariant: a request without directives that says nothing about thinking
goes on as it came.
"""

from collections.abc import Mapping, Sequence

import attrs

from ninfer.conversation import (
    EngineUnavailable,
    Forbidden,
    GenerationRequest,
    InternalError,
    InvalidRequest,
    NotFound,
    Overloaded,
    QueueTimeout,
    RequestError,
    RequestTooLarge,
    Text,
    ThinkingFields,
    Turn,
    Unauthenticated,
)
from ninfer.engine.directives import find_directives
from ninfer.prompt import Cancellation, PreparedPrompt
from ninfer.service.preparing import Preparer

_REFUSALS: Mapping[str, type[RequestError]] = {
    "400": InvalidRequest,
    "401": Unauthenticated,
    "403": Forbidden,
    "404": NotFound,
    "413": RequestTooLarge,
    "429": Overloaded,
    "500": InternalError,
    "503": EngineUnavailable,
    "504": QueueTimeout,
    "529": Overloaded,
}


@attrs.frozen
class ScriptedPreparer:
    """A `Preparer` in front of another one."""

    preparer: Preparer

    @property
    def in_place(self) -> bool:
        """As the other one's."""
        return self.preparer.in_place

    def build(
        self, request: GenerationRequest, *, most_tokens: int | None = None, cancellation: Cancellation | None = None
    ) -> PreparedPrompt:
        """The prompt of `request`.

        Raises:
            RequestError: the one that the request's own text asks for.
        """
        asked = _last_with_directives(request.turns)
        if asked is not None:
            _refuse(request.turns[asked].text)
        if _asks_to_think(request.thinking):
            request = attrs.evolve(request, turns=_with_think(request.turns, asked))
        return self.preparer.build(request, most_tokens=most_tokens, cancellation=cancellation)


def _last_with_directives(turns: Sequence[Turn]) -> int | None:
    """The user turn that the scripted engine follows."""
    for at in reversed(range(len(turns))):
        if turns[at].role == "user" and find_directives(turns[at].text):
            return at
    return None


def _refuse(text: str) -> None:
    for directive in find_directives(text):
        status, _, code = (directive.argument or "").partition(":")
        if directive.kind == "err" and status in _REFUSALS:
            raise _REFUSALS[status](f"the script asks for the status {status}", code=code or None)


def _asks_to_think(thinking: ThinkingFields) -> bool:
    if thinking.enabled is None:
        return thinking.effort is not None or thinking.budget_tokens is not None
    return thinking.enabled


def _with_think(turns: tuple[Turn, ...], asked: int | None) -> tuple[Turn, ...]:
    at = asked
    if at is None:
        at = max((at for at, turn in enumerate(turns) if turn.role == "user"), default=None)
    if at is None:
        return turns
    thinking = attrs.evolve(turns[at], parts=(*turns[at].parts, Text(" [[think]]")))
    return (*turns[:at], thinking, *turns[at + 1 :])
