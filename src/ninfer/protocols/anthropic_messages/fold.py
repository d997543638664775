"""The fold: what the wire events of a stream amount to, as the client's own library would put them together.

It knows the shapes of events; `order` judges their order, and what stands here relies on it.
"""

import json
from collections.abc import Mapping
from typing import cast

from ninfer.protocols.plugin import JSONValue

_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class MessageFold:
    """One message in the making."""

    def __init__(self) -> None:
        self._message: dict[str, object] = {}
        self._blocks: list[dict[str, object]] = []
        self._pieces: dict[str, list[str]] = {}
        """What the open block has got, by member; joined once, at its end."""
        self._complete = False

    def add(self, event: Mapping[str, object]) -> None:
        """Take the next event."""
        match event["type"]:
            case "message_start":
                self._message = dict(_members(event["message"]))
            case "content_block_start":
                self._blocks.append(dict(_members(event["content_block"])))
            case "content_block_delta":
                delta = _members(event["delta"])
                kind = str(delta["type"])
                member, source = ("input", "partial_json") if kind == "input_json_delta" else (_GROWING[kind],) * 2
                self._pieces.setdefault(member, []).append(str(delta[source]))
            case "content_block_stop":
                for member, pieces in self._pieces.items():
                    joined = "".join(pieces)
                    self._blocks[-1][member] = json.loads(joined) if member == "input" else joined
                self._pieces.clear()
            case "message_delta":
                usage = {**_members(self._message["usage"]), **_members(event["usage"])}
                self._message = {**self._message, **_members(event["delta"]), "usage": usage}
            case "message_stop":
                self._complete = True

    def message(self) -> dict[str, object]:
        """The message as a non-streamed answer.

        Raises:
            RuntimeError: the events ended before the message did.
        """
        if not self._complete:
            raise RuntimeError("the events ended without message_stop")
        return {**self._message, "content": self._blocks}


def _members(value: object) -> Mapping[str, JSONValue]:
    return cast(Mapping[str, JSONValue], value)
