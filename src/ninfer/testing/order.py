"""The order of a generation's events, as `ninfer.conversation.events` states it, and a judge of scripts.

It knows events, no protocol: how a protocol's own stream must look is the protocol's to judge. Invariant: what passes
here is what the real host may yield.
"""

from collections.abc import Iterable

from ninfer.conversation import CallMade, Finished, PromptProgress, Started, TextDelta


class OutOfOrder(AssertionError):
    """An event that the host would not yield here."""


def check_order(steps: Iterable[object]) -> None:
    """Judge the events among `steps`; other steps are waits, and an exception is a generation that fails there.

    Raises:
        OutOfOrder: the first event that cannot come where it stands.
    """
    order = _Order()
    for step in steps:
        if isinstance(step, Started | PromptProgress | TextDelta | CallMade | Finished):
            order.add(step)


class _Order:
    def __init__(self) -> None:
        self._started: Started | None = None
        self._processed = -1
        self._said = False
        self._finished = False

    def add(self, event: Started | PromptProgress | TextDelta | CallMade | Finished) -> None:
        _need(not self._finished, event, "comes after Finished, which is the last event")
        if isinstance(event, Started):
            _need(self._started is None, event, "comes twice")
            self._started = event
            return
        _need(self._started is not None, event, "comes before Started")
        if isinstance(event, PromptProgress):
            self._progress(event)
        elif isinstance(event, Finished):
            self._finished = True
        else:
            _need(not isinstance(event, TextDelta) or event.text != "", event, "is empty")
            self._said = True

    def _progress(self, event: PromptProgress) -> None:
        _need(not self._said, event, "comes after the first output")
        _need(self._processed <= event.processed_tokens <= event.total_tokens, event, "moves backwards or too far")
        self._processed = event.processed_tokens


def _need(holds: bool, event: object, fault: str) -> None:
    if not holds:
        raise OutOfOrder(f"{type(event).__name__} {fault}: {event}")
