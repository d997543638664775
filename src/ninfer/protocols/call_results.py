"""Calls of a history and their results: matched by id, one result for each call, in the order of the calls.

    matching = ResultMatching()
    matching.call("call_1", "messages[1].tool_calls[0].id")     # for each call of an assistant turn
    matching.result(turn, "messages[2].tool_call_id")           # for each result behind it
    turns += matching.end()                                     # where something else follows, or nothing

Shared by the protocols. It knows ids and the places to name, no wire form. Invariant: what `end` returns answers every
call that was told since the last `end`, and nothing else.
"""

from ninfer.conversation import InvalidRequest, Turn
from ninfer.protocols.values import shown


class ResultMatching:
    """Matches the results of one conversation, a turn with calls at a time."""

    def __init__(self, *, may_lead: bool, word: str = "result") -> None:
        """`may_lead` lets a conversation begin with results, as a history that was cut may."""
        self._unmatched = may_lead
        self._word = word
        self._calls: dict[str, str] = {}  # id -> place
        self._results: list[Turn] = []
        self._answered: set[str] = set()

    @property
    def needs_ids(self) -> bool:
        """Whether a result has to name its call."""
        return bool(self._calls) or not self._unmatched

    def speak(self) -> None:
        """The user or the assistant speaks: every result from here on answers a call that is here too."""
        self._unmatched = False

    def call(self, call_id: str, place: str) -> None:
        """A call of the assistant's turn, whose id stands at `place`.

        Raises:
            InvalidRequest: a call of the same turn has that id.
        """
        if call_id in self._calls:
            raise _refused(place, f"{shown(call_id)} names two calls of one turn")
        self._calls[call_id] = place

    def result(self, result: Turn, place: str) -> None:
        """A result, whose id stands at `place`.

        Raises:
            InvalidRequest: it answers no call of the turn before, or one that has a result already.
        """
        call_id = result.call_id or ""
        if call_id not in self._calls and self.needs_ids:
            raise _refused(place, f"{shown(call_id)} is no call of the assistant's turn before")
        if call_id in self._answered:
            raise _refused(place, f"the call {shown(call_id)} has two {self._word}s")
        self._results.append(result)
        self._answered |= {call_id} - {""}

    def end(self, place: str | None = None) -> list[Turn]:
        """The results in the order of their calls. `place` is where a missing one is missed; None: at its call.

        Raises:
            InvalidRequest: a call has no result.
        """
        found = {result.call_id: result for result in self._results}
        for call_id, call_place in self._calls.items():
            if call_id not in found:
                where = "" if place is None else f" at {call_place}"
                raise _refused(
                    place or call_place, f"the call {shown(call_id)}{where} has no {self._word} right behind its turn"
                )
        ordered = [found[call_id] for call_id in self._calls] or self._results
        self._calls, self._results, self._answered = {}, [], set()
        return ordered


def _refused(place: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{place}: {why}", code="invalid_tool_history", param=place)
