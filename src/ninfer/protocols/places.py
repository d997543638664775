"""Places in a body for refusals that come from below, where wire names are not known (ERR-005).

    async with placed(host.generate(request), places) as events: ...
    with located(places): tokens = await host.count_tokens(request)

What has a place already keeps it. It knows the kinds of errors, no body. `check_continuation` is the rule of what a
final assistant turn must be, for the protocols to ask while they still know its path.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

import attrs

from ninfer.conversation import CannotContinue, ContextExceeded, Event, InvalidRequest, Turn
from ninfer.protocols.values import shown


@attrs.frozen(kw_only=True)
class Places:
    """Paths of what a refusal may be about."""

    conversation: str
    last_turn: str
    output_limit: str | None = None
    """Of the limit that leaves no room to think; None where the request sets none."""

    def of(self, error: InvalidRequest) -> str | None:
        """The place that `error` is about."""
        if isinstance(error, CannotContinue):
            return self.last_turn
        if error.code == "thinking_budget_capacity_insufficient":
            return self.output_limit
        about_all = isinstance(error, ContextExceeded) or error.code == "invalid_prompt"
        return self.conversation if about_all else None


@contextmanager
def located(places: Places) -> Iterator[None]:
    """Give the refusals that are raised inside their place, in `param` and at the head of the message."""
    try:
        yield
    except InvalidRequest as error:
        place = places.of(error) if error.param is None else None
        if place is None:
            raise
        raise type(error)(f"{place}: {error.message}", code=error.code, param=place) from error


@asynccontextmanager
async def placed(
    generation: AbstractAsyncContextManager[AsyncIterator[Event]], places: Places
) -> AsyncIterator[AsyncIterator[Event]]:
    """`generation`, with a place for its refusals."""
    with located(places):
        async with generation as events:
            yield events


def check_continuation(turn: Turn, path: str, *, reasoning_suffices: bool = False) -> None:
    """Raise `CannotContinue` for a final assistant turn at `path` that is complete or has nothing to go on from.

    That thinking is off is for the prompt to see to: the server's flags have a say in it (D8).
    """
    if turn.calls:
        name = shown(turn.calls[-1].name)
        raise CannotContinue(
            f"{path}: a turn that has called {name} cannot be continued; its results are missing", param=path
        )
    if not turn.text and not (reasoning_suffices and turn.reasoning):
        what = "a turn that was cut while thinking" if turn.reasoning else "a turn without text"
        raise CannotContinue(f"{path}: {what} cannot be continued", param=path)
