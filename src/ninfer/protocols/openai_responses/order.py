"""A judge of event order: what the strictest reader of Responses streams would refuse, refused here.

    checker = OrderChecker()
    for event in events: checker.take(event)       # OutOfOrder says what is wrong
    checker.end()

For tests, and for a server with `--check-events`. It knows the grammar of events and nothing of how they
are made: it shares no code with `encode`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import attrs

Event: TypeAlias = Mapping[str, Any]

TERMINAL = ("response.completed", "response.incomplete", "response.failed")

_SNAPSHOT = ("response",)
_ITEM = ("output_index", "item")
_PART = ("item_id", "output_index", "content_index")
_SUMMARY = ("item_id", "output_index", "summary_index")
_CALL = ("item_id", "output_index")
REQUIRED: Mapping[str, Sequence[str]] = {
    # event type -> members beside type and sequence_number
    "response.created": _SNAPSHOT,
    "response.in_progress": _SNAPSHOT,
    **dict.fromkeys(TERMINAL, _SNAPSHOT),
    "response.output_item.added": _ITEM,
    "response.output_item.done": _ITEM,
    "response.content_part.added": (*_PART, "part"),
    "response.content_part.done": (*_PART, "part"),
    "response.output_text.delta": (*_PART, "delta", "logprobs"),
    "response.output_text.done": (*_PART, "text", "logprobs"),
    "response.reasoning_text.delta": (*_PART, "delta"),
    "response.reasoning_text.done": (*_PART, "text"),
    "response.reasoning_summary_part.added": (*_SUMMARY, "part"),
    "response.reasoning_summary_part.done": (*_SUMMARY, "part"),
    "response.reasoning_summary_text.delta": (*_SUMMARY, "delta"),
    "response.reasoning_summary_text.done": (*_SUMMARY, "text"),
    "response.function_call_arguments.delta": (*_CALL, "delta"),
    "response.function_call_arguments.done": (*_CALL, "arguments"),
}
_TEXT_OF = {"message": "output_text", "reasoning": "reasoning_text"}


class OutOfOrder(Exception):
    """An event that must not come here, or must not look like this."""


@attrs.define(kw_only=True)
class _Text:
    """Something that comes in deltas."""

    part: Mapping[str, Any]
    said: str = ""
    done: bool = False


@attrs.define(kw_only=True)
class _OpenItem:
    """The Item that has been added and is not done."""

    item: Mapping[str, Any]
    contents: list[_Text] = attrs.field(factory=list)
    summaries: list[_Text] = attrs.field(factory=list)
    arguments: _Text | None = None
    open_part: str = ""
    """Kind of the part that is open: "content", "summary", or none."""


class OrderChecker:
    """Takes the events of one stream in order."""

    def __init__(self) -> None:
        self._last_number = -1
        self._first: Event | None = None
        self._items: list[Mapping[str, Any]] = []
        self._ids: set[str] = set()
        self._open: _OpenItem | None = None
        self._types: list[str] = []
        self.ended = False

    def take(self, event: Event) -> None:
        """The next event.

        Raises:
            OutOfOrder: it is not one that may come now.
        """
        kind = str(event.get("type"))
        if kind not in REQUIRED:
            raise OutOfOrder(f"{kind!r} is no event that clients know")
        missing = [name for name in ("sequence_number", *REQUIRED[kind]) if name not in event]
        self._need(not missing, f"{kind} lacks {missing}")
        self._need(not self.ended, f"{kind} after the end")
        self._need(event["sequence_number"] > self._last_number, f"{kind}: the sequence number does not rise")
        self._last_number = event["sequence_number"]
        self._types.append(kind)
        begins = ("response.created", "response.in_progress")
        if len(self._types) <= len(begins):
            self._need(kind == begins[len(self._types) - 1], f"a stream begins with {begins}, not {self._types}")
        if REQUIRED[kind] == _SNAPSHOT:
            self._snapshot(kind, event["response"])
        elif kind == "response.output_item.added":
            self._added(event)
        else:
            self._inside(kind, event)

    def end(self) -> None:
        """The stream is over.

        Raises:
            OutOfOrder: it had no terminal event.
        """
        self._need(self.ended, "the stream has no terminal event")

    def _snapshot(self, kind: str, response: Mapping[str, Any]) -> None:
        if self._first is None:
            self._first = response
        self._need(response["id"] == self._first["id"], f"{kind} has another Response's id")
        if kind not in TERMINAL:
            self._need(response == self._first, f"{kind} repeats another snapshot")
            self._need(response["status"] == "in_progress", f"{kind} has the status {response['status']}")
            self._need(response["output"] == [] and response["usage"] is None, f"{kind} has a result already")
            return
        self.ended = True
        self._need(kind == f"response.{response['status']}", f"{kind} has the status {response['status']}")
        self._need(response.keys() == self._first.keys(), f"{kind} has other keys than the first snapshot")
        if kind == "response.failed":
            self._need(response["error"] is not None, "response.failed without an error")
            self._need(response["output"][: len(self._items)] in ([], self._items), "a failure changes Items")
            return
        self._need(self._open is None, f"{kind} while an Item is open")
        self._need(response["output"] == self._items, f"{kind} has other Items than were sent")
        self._need(response["usage"] is not None, f"{kind} without usage")
        self._need((kind == TERMINAL[1]) == (response["incomplete_details"] is not None), f"{kind} without its reason")

    def _added(self, event: Event) -> None:
        item = event["item"]
        self._need(self._open is None, "an Item is added while another is open")
        self._need(event["output_index"] == len(self._items), "an Item is added at another place than the next")
        self._need(item["id"] not in self._ids, "an Item's id is used twice")
        self._need(item["status"] == "in_progress", "an Item is added that is not in progress")
        for name, empty in (("content", []), ("summary", []), ("arguments", "")):
            self._need(item.get(name, empty) == empty, f"an Item is added with its {name}")
        self._ids.add(item["id"])
        self._open = _OpenItem(item=item)

    def _inside(self, kind: str, event: Event) -> None:
        at = self._open
        if at is None:
            raise OutOfOrder(f"{kind} outside of an Item")
        self._need(event["output_index"] == len(self._items), f"{kind} with another Item's index")
        if kind == "response.output_item.done":
            self._done(at, event["item"])
            return
        self._need(event["item_id"] == at.item["id"], f"{kind} with another Item's id")
        if kind.startswith("response.function_call_arguments"):
            self._arguments(at, kind, event)
        elif kind.startswith("response.reasoning_summary"):
            self._need(at.item["type"] == "reasoning", f"{kind} in an Item of type {at.item['type']}")
            self._part(at, "summary", at.summaries, "summary_text", kind, event)
        else:
            self._need(at.item["type"] in _TEXT_OF, f"{kind} in an Item of type {at.item['type']}")
            self._part(at, "content", at.contents, _TEXT_OF[at.item["type"]], kind, event)

    def _part(self, at: _OpenItem, where: str, parts: list[_Text], form: str, kind: str, event: Event) -> None:
        index = event[f"{where}_index"]
        if kind.endswith("part.added"):
            self._need(not at.open_part, f"{kind} while a part is open")
            self._need(index == len(parts), f"{kind} at another place than the next")
            self._need(event["part"]["type"] == form and event["part"]["text"] == "", f"{kind} with a wrong part")
            parts.append(_Text(part=event["part"]))
            at.open_part = where
            return
        self._need(at.open_part == where and index == len(parts) - 1, f"{kind} outside of its part")
        part = parts[-1]
        if kind.endswith("part.done"):
            self._need(part.done, f"{kind} before the text is done")
            self._need(event["part"] == {**part.part, "text": part.said}, f"{kind} has another part than was sent")
            at.open_part = ""
            return
        expected = "reasoning_summary_text" if where == "summary" else form
        self._need(kind.split(".")[1] == expected, f"{kind} in a part of type {form}")
        self._need(not part.done, f"{kind} after the text is done")
        if kind.endswith(".delta"):
            part.said += event["delta"]
        else:
            self._need(event["text"] == part.said, f"{kind} is not its deltas")
            part.done = True

    def _arguments(self, at: _OpenItem, kind: str, event: Event) -> None:
        self._need(at.item["type"] == "function_call", f"{kind} in an Item of type {at.item['type']}")
        at.arguments = at.arguments or _Text(part={})
        self._need(not at.arguments.done, f"{kind} after the arguments are done")
        if kind.endswith(".delta"):
            at.arguments.said += event["delta"]
        else:
            self._need(event["arguments"] == at.arguments.said, f"{kind} is not its deltas")
            at.arguments.done = True

    def _done(self, at: _OpenItem, item: Mapping[str, Any]) -> None:
        self._need(not at.open_part, "an Item is done while a part is open")
        for name in ("id", "type", "name", "call_id", "namespace", "role"):
            self._need(item.get(name) == at.item.get(name), f"an Item's {name} changes")
        if item["type"] == "function_call":
            whole = at.arguments is not None and at.arguments.done and item["arguments"] == at.arguments.said
            self._need(whole, "a call is done without its arguments")
        else:
            self._need(bool(at.contents), "an Item is done without a part")
            sent = [{**text.part, "text": text.said} for text in at.contents]
            self._need(item["content"] == sent, "an Item is done with other content than was sent")
            summary = [{**text.part, "text": text.said} for text in at.summaries]
            self._need(item.get("summary", []) == summary, "an Item is done with another summary than was sent")
        self._items.append(item)
        self._open = None

    def _need(self, holds: bool, what: str) -> None:
        if not holds:
            raise OutOfOrder(what)
