"""The rules that every stream of Messages keeps, as a checker: for tests, and for a server that watches itself.

    checker = OrderChecker()
    for event in events: checker.add(event)
    checker.finish()

message_start, blocks numbered from 0 that never overlap, message_delta once, message_stop; deltas fit their block, a
thinking block has exactly one signature, at its end; a call's input is one JSON object. `ping` may come anywhere after
the start, an `error` anywhere, and ends the stream.
"""

import json
from collections.abc import Mapping

_DELTAS = {
    "text": ("text_delta",),
    "thinking": ("thinking_delta", "signature_delta"),
    "tool_use": ("input_json_delta",),
}
_EMPTY: Mapping[str, dict[str, object]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}


class OrderViolation(Exception):
    """An event that cannot come here."""


class OrderChecker:
    """Judges one stream, event by event."""

    def __init__(self) -> None:
        self._phase = "before"
        self._blocks = 0
        self._kind: str | None = None
        """Of the open block."""
        self._signed = False
        self._input = ""

    def add(self, event: Mapping[str, object]) -> None:
        """Take the next event.

        Raises:
            OrderViolation: it is out of order or has not the members it needs.
        """
        kind = event.get("type")
        _need(self._phase != "ended", f"{kind} after the end")
        match kind:
            case "message_start":
                self._start(_object(event, "message"))
            case "ping":
                _need(self._phase != "before", "ping before message_start")
            case "error":
                _object(event, "error")
                self._phase = "ended"
            case "content_block_start":
                self._block_start(event)
            case "content_block_delta":
                self._delta(event)
            case "content_block_stop":
                self._block_stop(event)
            case "message_delta":
                self._message_delta(event)
            case "message_stop":
                _need(self._phase == "closing", "message_stop without message_delta")
                self._phase = "ended"
            case _:
                raise OrderViolation(f"no event is called {kind}")

    def finish(self) -> None:
        """The stream is over.

        Raises:
            OrderViolation: the message is not.
        """
        _need(self._phase == "ended", f"the stream breaks off in the phase {self._phase}")

    def _start(self, message: Mapping[str, object]) -> None:
        _need(self._phase == "before", "a second message_start")
        _need(message.get("content") == [] and message.get("stop_reason") is None, "the message begins with an answer")
        self._phase = "open"

    def _block_start(self, event: Mapping[str, object]) -> None:
        block = _object(event, "content_block")
        kind = str(block.get("type"))
        _need(self._phase == "open" and self._kind is None, "a block begins outside the message or inside a block")
        _need(event.get("index") == self._blocks, f"block {self._blocks} is numbered {event.get('index')}")
        _need(kind in _DELTAS, f"no block is called {kind}")
        _need(_EMPTY[kind].items() <= block.items(), f"a block of type {kind} begins without its empty members")
        self._kind, self._signed, self._input = kind, False, ""

    def _delta(self, event: Mapping[str, object]) -> None:
        delta = _object(event, "delta")
        kind = str(delta.get("type"))
        _need(self._kind is not None and event.get("index") == self._blocks, "a delta outside its block")
        _need(kind in _DELTAS[self._kind or ""], f"{kind} in a block of type {self._kind}")
        _need(not self._signed, f"{kind} after the signature")
        text = delta.get({"input_json_delta": "partial_json"}.get(kind, kind.removesuffix("_delta")))
        _need(isinstance(text, str) and text != "", f"{kind} without text")
        self._signed = kind == "signature_delta"
        if kind == "input_json_delta":
            self._input += str(text)

    def _block_stop(self, event: Mapping[str, object]) -> None:
        _need(self._kind is not None and event.get("index") == self._blocks, "a block ends that is not open")
        _need(self._kind != "thinking" or self._signed, "a thinking block ends without a signature")
        if self._kind == "tool_use":
            _need(_is_object(self._input or "{}"), "the input of a call is no JSON object")
        self._kind = None
        self._blocks += 1

    def _message_delta(self, event: Mapping[str, object]) -> None:
        _need(self._phase == "open" and self._kind is None, "message_delta inside a block or for a second time")
        _need(isinstance(_object(event, "delta").get("stop_reason"), str), "message_delta without a stop_reason")
        _need(isinstance(_object(event, "usage").get("output_tokens"), int), "message_delta without output_tokens")
        self._phase = "closing"


def _need(holds: bool, fault: str) -> None:
    if not holds:
        raise OrderViolation(fault)


def _object(event: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = event.get(name)
    if not isinstance(value, dict):
        raise OrderViolation(f"{event.get('type')} without {name}")
    return value


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
