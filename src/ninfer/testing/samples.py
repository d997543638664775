"""Samples of all that can happen to a request: each kind of generation, and each kind of error.

For tests that go through a table: a protocol that writes all of these has forgotten none. It knows the conversation and
no protocol.
"""

from collections.abc import Sequence

from ninfer.conversation import FinishReason, PromptProgress, RequestError, Started, TextDelta
from ninfer.protocols.mounting import ERROR_KINDS
from ninfer.testing.host import Step, call_made, finished, script


def error_samples() -> tuple[RequestError, ...]:
    """One error of each kind, with its default code and with a path as its `param`."""
    return tuple(kind(f"a sample of {kind.__name__}", param="some.path[0]") for kind in ERROR_KINDS)


def generations() -> dict[str, Sequence[Step]]:
    """Scripts of whole generations by what is particular about them, in the order in which hosts yield their events."""
    started = Started(prompt_tokens=11, cached_tokens=4)
    progress = [
        PromptProgress(total_tokens=11, cached_tokens=4, processed_tokens=done, elapsed_s=done / 100)
        for done in (4, 11)
    ]
    call, other = call_made("get_weather", {"city": "Paris", "days": 2}), call_made("get_time", {}, call_id="call_2")
    return {
        "an answer": script("Hel", "lo ", "wörld"),
        "reasoning before an answer": script("Hello", reasoning=["I ", "think"]),
        "progress before an answer": [started, *progress, TextDelta("Hello", "answer"), finished()],
        "a call": [started, call, finished()],
        "two calls behind a text": [started, TextDelta("Let me look.", "answer"), call, other, finished()],
        "a call behind reasoning": [started, TextDelta("I need it.", "reasoning"), call, finished()],
        "a stop string": script("Hello", end=finished(FinishReason.STOP_STRING, stop="END")),
        "the output limit": script("Hel", end=finished(FinishReason.OUTPUT_LIMIT)),
        "the output limit while thinking": script(reasoning=["I th"], end=finished(FinishReason.OUTPUT_LIMIT)),
        "the output limit behind a call": [started, call, finished(FinishReason.OUTPUT_LIMIT)],
        "the context limit": script("Hel", end=finished(FinishReason.CONTEXT_LIMIT)),
        "nothing said": script(),
    }
