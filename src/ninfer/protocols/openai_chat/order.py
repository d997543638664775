"""The rules that every stream of Chat keeps, as a checker: for tests, and for a server that watches itself.

    checker = OrderChecker()
    for chunk in chunks: checker.add(chunk)       # the last one is "[DONE]"
    checker.finish()

A chunk with the role, deltas that say something, one finish reason, then perhaps one chunk of usage. Calls are whole,
numbered from 0, and come after all text; progress comes before all text and never moves backwards. `timings` stand on
the very last chunk. An `error` may come anywhere and ends the stream, without a finish reason after it.
"""

import json
from collections.abc import Mapping
from typing import Any

from ninfer.protocols.sse import DONE_DATA

_TEXTS = ("content", "reasoning_content")


class OrderViolation(Exception):
    """A chunk that cannot come here."""


class OrderChecker:
    """Judges one stream, chunk by chunk."""

    def __init__(self) -> None:
        self._phase = "before"
        self._head: tuple[object, ...] | None = None
        self._calls = 0
        self._said = False
        self._processed = -1
        self._timings = False
        """The latest chunk had them."""

    def add(self, chunk: object) -> None:
        """Take the next chunk, or the word that ends a stream.

        Raises:
            OrderViolation: it is out of order or has not the members it needs.
        """
        _need(self._phase != "ended", "something after the end")
        if isinstance(chunk, str):
            _need(chunk == DONE_DATA, f"data that is no chunk: {chunk[:40]!r}")
            _need(self._phase in ("closing", "counted"), f"{DONE_DATA} without a finish reason")
            _need(self._timings, "the last chunk has no timings")
            self._phase = "ended"
        elif not isinstance(chunk, dict):
            raise OrderViolation("a chunk that is no object")
        elif "error" in chunk:
            _need(isinstance(chunk["error"], dict) and "message" in chunk["error"], "an error without a message")
            self._phase = "ended"
        else:
            self._chunk(chunk)

    def finish(self) -> None:
        """The stream is over.

        Raises:
            OrderViolation: the answer is not.
        """
        _need(self._phase == "ended", f"the stream breaks off in the phase {self._phase}")

    def _chunk(self, chunk: Mapping[str, Any]) -> None:
        _need(chunk.get("object") == "chat.completion.chunk", "a chunk that is not called one")
        head = (chunk.get("id"), chunk.get("created"), chunk.get("model"))
        _need(self._head is None or head == self._head, "id, created or model change")
        self._head = head
        self._timings = "timings" in chunk
        choices = chunk.get("choices")
        _need(isinstance(choices, list) and len(choices) <= 1, "one choice at most")
        if self._phase in ("closing", "counted"):
            _need(self._phase == "closing", "a second chunk of usage")
            self._usage(chunk)
            return
        _need(choices, "a chunk without a choice before the finish reason")
        _need(chunk.get("usage") is None, "usage before the finish reason")
        choice = chunk["choices"][0]
        _need(choice.get("index") == 0 and choice.get("logprobs", 0) is None, "index or logprobs are missing")
        delta = choice.get("delta")
        if self._phase == "before":
            _need(delta.get("role") == "assistant" and choice["finish_reason"] is None, "no role at the beginning")
            self._phase = "open"
        elif choice["finish_reason"] is not None:
            _need(delta == {}, "a finish reason beside a delta")
            _need((choice["finish_reason"] == "tool_calls") <= (self._calls > 0), "tool_calls without a call")
            self._phase = "closing"
        elif "prompt_progress" in chunk:
            self._progress(chunk["prompt_progress"])
        else:
            self._delta(delta)

    def _usage(self, chunk: Mapping[str, Any]) -> None:
        _need(isinstance(chunk.get("usage"), dict), "a chunk without usage after the finish reason")
        _need(all(choice.get("delta") == {} for choice in chunk["choices"]), "the usage chunk says something")
        self._phase = "counted"

    def _progress(self, progress: Mapping[str, int]) -> None:
        _need(not self._said, "progress after the first output")
        first = progress["cache"] if self._processed < 0 else progress["processed"]
        _need(progress["processed"] == first, "progress does not begin with what was reused")
        _need(self._processed < progress["processed"] <= progress["total"], "progress moves backwards or too far")
        self._processed = progress["processed"]

    def _delta(self, delta: Mapping[str, Any]) -> None:
        self._said = True
        if "tool_calls" in delta:
            _need(set(delta) == {"tool_calls"} and len(delta["tool_calls"]) == 1, "one call in a delta")
            self._call(delta["tool_calls"][0])
            return
        _need(len(delta) == 1 and set(delta) <= set(_TEXTS), f"a delta of {sorted(delta)}")
        _need(all(isinstance(text, str) and text for text in delta.values()), "a delta without text")
        _need(self._calls == 0, "text after a call")

    def _call(self, call: Mapping[str, Any]) -> None:
        _need(call.get("index") == self._calls, f"call {self._calls} is numbered {call.get('index')}")
        _need(isinstance(call.get("id"), str) and call["id"] != "", "a call without an id")
        if call.get("type") == "custom":
            _need(isinstance(call["custom"]["input"], str), "a free-form call without its input")
        else:
            _need(isinstance(json.loads(call["function"]["arguments"]), dict), "arguments that are no JSON object")
        self._calls += 1


def _need(holds: object, fault: str) -> None:
    if not holds:
        raise OrderViolation(fault)
