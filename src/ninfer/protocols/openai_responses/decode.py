"""From a Responses body to a `GenerationRequest`, with what the answer's form and the store need besides.

Refusals by name come first, then structure, then meaning. It knows Responses' wire names and reads the store; nothing
is written here, so a request that is refused leaves no trace.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, cast

import attrs

from ninfer.conversation import GenerationRequest, InvalidRequest, NotFound, SamplingFields, Text, Turn
from ninfer.protocols.cache_points import place_cache_points
from ninfer.protocols.function_tools import check_parallel
from ninfer.protocols.openai_responses.fields import refuse_fields_by_name
from ninfer.protocols.openai_responses.history import turns_of
from ninfer.protocols.openai_responses.items import AnyItem, MessageItem, read_item, user_text
from ninfer.protocols.openai_responses.store import StoredResponse
from ninfer.protocols.openai_responses.tools import ToolTable, calls_allowed, read_tools
from ninfer.protocols.openai_responses.wire import ResponsesBody
from ninfer.protocols.places import Places, check_continuation
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.structure import missing, structure
from ninfer.protocols.template_options import Said, TemplateOptions, template_options
from ninfer.protocols.values import shown, shown_name

METADATA_PAIRS, METADATA_KEY_CHARS, METADATA_VALUE_CHARS = 16, 64, 512


class Shelf(Protocol):
    """What decoding needs of the store; asked from whatever thread decodes."""

    def get(self, response_id: str) -> StoredResponse | None:
        """The Response of that id."""
        ...

    def item(self, item_id: str) -> AnyItem | None:
        """An Item of a stored Response."""
        ...


@attrs.frozen(kw_only=True)
class ResponsesCall:
    """A decoded request and what only the answer's form and the store depend on."""

    wire: ResponsesBody
    request: GenerationRequest
    table: ToolTable
    input: tuple[AnyItem, ...]
    """The Items of this request alone."""
    previous: StoredResponse | None
    preserve_thinking: bool | None
    places: Places

    @property
    def summary(self) -> str | None:
        """The kind of summary that was asked for; every kind gets the same placeholder (RESP-013)."""
        reasoning = self.wire.reasoning
        return reasoning.generate_summary if reasoning.summary is None else reasoning.summary

    @property
    def mirrors_reasoning(self) -> bool:
        """Whether reasoning Items carry their text as `encrypted_content` too (ROBJ-005)."""
        return bool(self.wire.include)


def decode(body: JSONValue, shelf: Shelf) -> ResponsesCall:
    """What `body` asks for.

    Raises:
        InvalidRequest: malformed or contradictory; `param` is the path.
        Unsupported: understood and not offered.
        NotFound: `previous_response_id` names no stored Response.
    """
    if isinstance(body, dict):
        refuse_fields_by_name(body)
    wire = structure(body, ResponsesBody)
    _check_metadata(wire.metadata or {})
    table = read_tools(wire.tools)
    allowed = calls_allowed(wire.tool_choice)
    check_parallel(wire.parallel_tool_calls, table.tools)
    options = _options(wire)
    previous = _previous(wire.previous_response_id, shelf)
    own = _input(wire.input, shelf)
    items = (previous.context.history() if previous else ()) + own
    _check_ids(items)
    if not own and not any(isinstance(item, MessageItem) and item.role == "user" for item in items):
        raise missing("input")
    turns = _turns(wire, items, table)
    if turns[-1].role == "assistant":
        check_continuation(turns[-1], items[-1].path, reasoning_suffices=True)
    preserve = options.thinking.preserve
    if preserve is None and previous is not None:
        preserve = previous.preserve_thinking
    return ResponsesCall(
        wire=wire,
        table=table,
        input=own,
        previous=previous,
        preserve_thinking=preserve,
        places=Places(
            conversation="input",
            last_turn=items[-1].path if items else "input",
            output_limit=None if wire.max_output_tokens is None else "max_output_tokens",
        ),
        request=GenerationRequest(
            turns=turns,
            sampling=SamplingFields(temperature=wire.temperature, top_p=wire.top_p),
            thinking=attrs.evolve(options.thinking, preserve=preserve),
            template_kwargs=options.kwargs,
            tools=table.tools,
            calls_allowed=allowed,
            max_output_tokens=wire.max_output_tokens,
        ),
    )


def _options(wire: ResponsesBody) -> TemplateOptions:
    typed = []
    if wire.preserve_thinking is not None:
        typed.append(Said("preserve_thinking", "preserve_thinking", wire.preserve_thinking))
    if wire.reasoning.effort is not None:
        typed.append(Said("reasoning.effort", "reasoning_effort", wire.reasoning.effort))
    return template_options(cast(JSONValue, wire.chat_template_kwargs), typed)


def _turns(wire: ResponsesBody, items: Sequence[AnyItem], table: ToolTable) -> tuple[Turn, ...]:
    """Instructions lead and stay out of the Items: they are for this request only (RESP-004, RITEM-017)."""
    turns = turns_of(items, table.identity)
    if wire.instructions is not None:
        turns = (Turn(role="developer", parts=(Text(wire.instructions),)), *turns)
    return place_cache_points(turns, implicit=wire.prompt_cache_options.mode == "implicit")


def _previous(response_id: str | None, shelf: Shelf) -> StoredResponse | None:
    if response_id is None:
        return None
    found = shelf.get(response_id)
    if found is None:
        raise NotFound(
            f"previous_response_id: there is no stored Response {shown(response_id)}",
            code="response_not_found",
            param="previous_response_id",
        )
    return found


def _input(given: str | tuple[Mapping[str, JSONValue], ...], shelf: Shelf) -> tuple[AnyItem, ...]:
    if isinstance(given, str):
        return (user_text(given),) if given else ()
    return tuple(_item(f"input[{at}]", raw, shelf) for at, raw in enumerate(given))


def _item(path: str, raw: Mapping[str, JSONValue], shelf: Shelf) -> AnyItem:
    if not _is_reference(raw):
        return read_item(path, raw)
    item_id = raw.get("id")
    if not isinstance(item_id, str):
        if item_id is None:
            raise missing(f"{path}.id")
        raise InvalidRequest(
            f"{path}.id: expected a string, got {shown(item_id)}", code="invalid_type", param=f"{path}.id"
        )
    found = shelf.item(item_id)
    if found is None:
        raise InvalidRequest(
            f"{path}.id: no stored Response holds an Item {shown(item_id)}", code="item_not_found", param=f"{path}.id"
        )
    return attrs.evolve(found, path=path)


def _is_reference(raw: Mapping[str, JSONValue]) -> bool:
    """Whether it refers to an Item: by its type, which may be missing or null, or by an id and nothing else."""
    said = {name for name, value in raw.items() if value is not None}
    return raw.get("type") == "item_reference" or said == {"id"}


def _check_ids(items: Iterable[AnyItem]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            path = f"{item.path}.id"
            raise InvalidRequest(f"{path}: {shown(item.id)} is given twice", code="duplicate_item_id", param=path)
        seen.add(item.id)


def _check_metadata(metadata: Mapping[str, JSONValue]) -> None:
    if len(metadata) > METADATA_PAIRS:
        raise InvalidRequest(
            f"metadata: expected at most {METADATA_PAIRS} pairs, got {shown(dict(metadata))}", param="metadata"
        )
    for key, value in metadata.items():
        path = f"metadata.{shown_name(key)}"
        if len(key) > METADATA_KEY_CHARS:
            raise InvalidRequest(
                f"{path}: a key has at most {METADATA_KEY_CHARS} characters, got {shown(key)}", param=path
            )
        if not isinstance(value, str):
            raise InvalidRequest(f"{path}: expected a string, got {shown(value)}", code="invalid_type", param=path)
        if len(value) > METADATA_VALUE_CHARS:
            raise InvalidRequest(
                f"{path}: a value has at most {METADATA_VALUE_CHARS} characters, got {shown(value)}", param=path
            )
