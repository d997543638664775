"""Items: the typed pieces of a Responses conversation, as they come in, are shown, stored and used.

`read_item` checks one Item of a body against its kind and gives it an id; `shown` is how resources list it. What we
have generated ourselves becomes an Item by the same reading. It knows one Item at a time; `history` makes turns of
them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, cast
from uuid import uuid4

import attrs

from ninfer.conversation import CachePoint, InvalidRequest, RequestError, Role, Text
from ninfer.protocols.call_arguments import read_arguments
from ninfer.protocols.openai_responses.wire import WireItem, WirePart
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.refusal import needs_vision, unsupported
from ninfer.protocols.sse import dump_json
from ninfer.protocols.structure import missing, structure
from ninfer.protocols.values import shown

ItemPart: TypeAlias = Text | CachePoint
Place: TypeAlias = Literal["user", "assistant", "system", "developer", "output"]

_ANOTHERS_TOKEN = re.compile(r"[A-Za-z0-9+/_=\-]{64,}")
"""Reasoning that another service has encrypted: one long run of base64 characters (D28)."""


@attrs.frozen(kw_only=True)
class Item:
    """One Item. `path` is where it stood in the body, or the parameter that brought it here."""

    id: str
    path: str
    shown: Mapping[str, object]
    """The canonical wire form."""


@attrs.frozen(kw_only=True)
class MessageItem(Item):
    """A message of anyone."""

    role: Role
    parts: tuple[ItemPart, ...]


@attrs.frozen(kw_only=True)
class ReasoningItem(Item):
    """Reasoning of an earlier reply, raw."""

    text: str


@attrs.frozen(kw_only=True)
class CallItem(Item):
    """A completed call."""

    call_id: str
    origin: tuple[str | None, str]
    arguments: Mapping[str, object]


@attrs.frozen(kw_only=True)
class ResultItem(Item):
    """What a call has come to; namespace and name, where given, must be the call's."""

    call_id: str
    namespace: str | None
    name: str | None
    parts: tuple[ItemPart, ...]


AnyItem: TypeAlias = MessageItem | ReasoningItem | CallItem | ResultItem


def user_text(text: str) -> AnyItem:
    """String input as the Item that it stands for (RITEM-001)."""
    return read_item("input", {"role": "user", "content": [{"type": "input_text", "text": text}]})


def own_items(output: Sequence[Mapping[str, object]]) -> tuple[AnyItem, ...]:
    """Output Items of ours as Items of the next request's history."""
    read = [(one, read_item("previous_response_id", cast(Mapping[str, JSONValue], one))) for one in output]
    return tuple(attrs.evolve(item, shown=one) for one, item in read)


def read_item(path: str, raw: Mapping[str, JSONValue]) -> AnyItem:
    """The Item that `raw`, which stands at `path` of the body, is by its type; a message may leave that out.

    Raises:
        InvalidRequest: a member is missing or has no place here.
        Unsupported: an Item, a part or a value that is not offered (media: vision_disabled).
    """
    kind = raw.get("type")
    if kind is None and raw.get("role") is None:
        raise missing(f"{path}.type")
    read = _message if kind is None else _KINDS.get(kind) if isinstance(kind, str) else None
    if read is None:
        known = f"input is made of {', '.join(_KINDS)} and item_reference"
        raise unsupported(f"{path}.type", kind, known)
    return read(path, structure(raw, WireItem, at=path), raw)


def new_id(prefix: str) -> str:
    """A fresh id of an Item, a call or a Response."""
    return f"{prefix}_{uuid4().hex}"


def _message(path: str, wire: WireItem, raw: Mapping[str, JSONValue]) -> MessageItem:
    if wire.role is None:
        raise missing(f"{path}.role")
    if wire.content is None:
        raise missing(f"{path}.content")
    content = raw["content"]
    if isinstance(wire.content, str):
        parts: tuple[ItemPart, ...] = (Text(wire.content),) if wire.content else ()
        if wire.role == "assistant":
            content = [{"type": "output_text", "text": wire.content, "annotations": [], "logprobs": []}]
        else:
            content = [{"type": "input_text", "text": wire.content}]
    else:
        parts = _parts(f"{path}.content", wire.content, cast(Place, wire.role), content)
    id_ = wire.id or new_id("msg")
    shown_item = {"id": id_, "type": "message", "role": wire.role, "status": wire.status or "completed"}
    if wire.phase is not None:
        shown_item["phase"] = wire.phase
    return MessageItem(
        id=id_, path=path, shown={**shown_item, "content": content}, role=cast(Role, wire.role), parts=parts
    )


def _parts(path: str, parts: Sequence[WirePart], place: Place, raw: JSONValue) -> tuple[ItemPart, ...]:
    found: list[ItemPart] = []
    for at, (part, raw_part) in enumerate(zip(parts, cast(Sequence[Mapping[str, JSONValue]], raw), strict=True)):
        found.append(_part(f"{path}[{at}]", part, place, raw_part))
        if part.prompt_cache_breakpoint is not None:
            found.append(CachePoint())
    return tuple(found)


def _part(path: str, part: WirePart, place: Place, raw: Mapping[str, JSONValue]) -> Text:
    if part.type == "input_text":
        return Text(_text(path, "text", part.text))
    if place == "assistant" and part.type == "output_text":
        return Text(_text(path, "text", part.text))
    if place == "assistant" and part.type == "refusal":
        return Text(_text(path, "refusal", part.refusal))
    if part.type in ("input_image", "input_video"):
        raise _media(path, part.type, raw)
    where = "the output of a call" if place == "output" else f"a message with the role {place}"
    if part.type in ("input_file", "input_audio"):
        raise unsupported(f"{path}.type", part.type, "audio and files are not read")
    raise InvalidRequest(f"{path}.type: {shown(part.type)} is no part of {where}", param=f"{path}.type")


def _media(path: str, kind: str, raw: Mapping[str, JSONValue]) -> RequestError:
    if raw.get("file_id") is not None:
        return unsupported(f"{path}.file_id", raw["file_id"], "files are not stored; give a URL or a data URI")
    if raw.get("detail") not in (None, "auto", "high", "original"):
        return unsupported(f"{path}.detail", raw["detail"], "images are read at full resolution")
    return needs_vision(path, kind)


def _text(path: str, name: str, value: str | None) -> str:
    if value is None:
        raise missing(f"{path}.{name}")
    return value


def _reasoning(path: str, wire: WireItem, raw: Mapping[str, JSONValue]) -> ReasoningItem:
    for at, part in enumerate(wire.summary):
        if part.type != "summary_text":
            raise InvalidRequest(
                f"{path}.summary[{at}].type: {shown(part.type)} is no part of a summary",
                param=f"{path}.summary[{at}].type",
            )
    parts = (WirePart(type="reasoning_text", text=wire.content),) if isinstance(wire.content, str) else wire.content
    for at, part in enumerate(parts or ()):
        if part.type != "reasoning_text":
            raise InvalidRequest(
                f"{path}.content[{at}].type: {shown(part.type)} is no part of reasoning",
                param=f"{path}.content[{at}].type",
            )
    if parts:
        text = "".join(_text(f"{path}.content[{at}]", "text", part.text) for at, part in enumerate(parts))
    else:
        text = _mirrored(path, wire.encrypted_content)
    id_ = wire.id or new_id("rs")
    shown_item: dict[str, object] = {
        "id": id_,
        "type": "reasoning",
        "summary": raw.get("summary") or [],
        "content": [{"type": "reasoning_text", "text": text}],
        "status": wire.status or "completed",
    }
    if wire.encrypted_content is not None:
        shown_item["encrypted_content"] = wire.encrypted_content
    return ReasoningItem(id=id_, path=path, shown=shown_item, text=text)


def _mirrored(path: str, encrypted: str | None) -> str:
    """Reasoning from `encrypted_content` alone: ours is the raw text."""
    if not encrypted:
        raise InvalidRequest(
            f"{path}.content: reasoning without its text cannot be replayed",
            code="invalid_reasoning_item",
            param=f"{path}.content",
        )
    if _ANOTHERS_TOKEN.fullmatch(encrypted.strip()):
        raise InvalidRequest(
            f"{path}.encrypted_content: {shown(encrypted)} was made by another service and cannot be read here",
            code="invalid_reasoning_item",
            param=f"{path}.encrypted_content",
        )
    return encrypted


def _whole(path: str, wire: WireItem) -> None:
    if wire.status not in (None, "completed"):
        raise unsupported(
            f"{path}.status", wire.status, "calls and their outputs are taken over when they are complete"
        )


def _call(path: str, wire: WireItem, raw: Mapping[str, JSONValue]) -> CallItem:
    _whole(path, wire)
    call_id = _text(path, "call_id", wire.call_id)
    name = _text(path, "name", wire.name)
    if wire.arguments is None:
        raise missing(f"{path}.arguments")
    arguments = read_arguments(wire.arguments, f"{path}.arguments")
    spelled = wire.arguments if isinstance(wire.arguments, str) and wire.arguments else dump_json(arguments)
    id_ = wire.id or new_id("fc")
    shown_item = {"id": id_, "type": "function_call", "call_id": call_id, "name": name, "arguments": spelled}
    if wire.namespace is not None:
        shown_item["namespace"] = wire.namespace
    return CallItem(
        id=id_,
        path=path,
        shown={**shown_item, "status": "completed"},
        call_id=call_id,
        origin=(wire.namespace, name),
        arguments=arguments,
    )


def _result(path: str, wire: WireItem, raw: Mapping[str, JSONValue]) -> ResultItem:
    _whole(path, wire)
    call_id = _text(path, "call_id", wire.call_id)
    if wire.output is None:
        raise missing(f"{path}.output")
    if isinstance(wire.output, str):
        parts: tuple[ItemPart, ...] = (Text(wire.output),) if wire.output else ()
    elif not wire.output:
        raise InvalidRequest(f"{path}.output: expected a string or at least one part, got []", param=f"{path}.output")
    else:
        parts = _parts(f"{path}.output", wire.output, "output", raw["output"])
    id_ = wire.id or new_id("fco")
    shown_item: dict[str, object] = {
        "id": id_,
        "type": "function_call_output",
        "call_id": call_id,
        "output": raw["output"],
        "status": "completed",
    }
    return ResultItem(
        id=id_, path=path, shown=shown_item, call_id=call_id, namespace=wire.namespace, name=wire.name, parts=parts
    )


_KINDS: Mapping[str, Callable[[str, WireItem, Mapping[str, JSONValue]], AnyItem]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _call,
    "function_call_output": _result,
}
