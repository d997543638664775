"""Which top-level fields a Responses request may have, and what it may ask for by name (D10, D11, D12, D40).

Unlike the other protocols, Responses refuses a field that it does not know, so this is the one list to extend when the
official SDKs learn a parameter. It knows names and values, not what they mean.
"""

from collections.abc import Mapping

import attrs

from ninfer.conversation import InvalidRequest
from ninfer.protocols.openai_responses.wire import ResponsesBody
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.refusal import (
    CONSTRAINED_ELSEWHERE,
    GUIDED,
    UNCONSTRAINED,
    Refusals,
    empty,
    never,
    one_of,
    plain_text,
    refuse_fields,
    unsupported,
)
from ninfer.protocols.values import shown, shown_name

_SDK_FIELDS: Refusals = {
    # What the official SDKs can send beyond the fields that are understood -> the values that ask for nothing.
    "access_programs": (empty, "there are no access programs here"),
    "background_options": (empty, "nothing runs in the background"),
    "context_management": (empty, "the context is not managed; what does not fit is refused"),
    "conversation": (never, "conversations are not stored; use previous_response_id"),
    "image": (empty, "images are not processed"),
    "moderation": (empty, "nothing is moderated"),
    "personality": (never, "there are no personalities"),
    "prompt": (never, "prompt templates are not stored"),
}
_EXTENSIONS: Refusals = {
    "structured_outputs": (never, UNCONSTRAINED),
    "tool_constraints": (one_of("basic", "auto"), "it is one of basic and auto"),
}


_VALUES: Refusals = {
    # Understood fields -> the values that are offered. What has a wrong type is left to the wire types.
    "truncation": (one_of("disabled"), "input that does not fit is refused, nothing is dropped from it"),
    "service_tier": (one_of("auto", "default"), "there is one tier"),
    "background": (one_of(False), "nothing runs in the background"),
    "top_logprobs": (one_of(0), "log probabilities are not computed"),
}
_TEXT: Refusals = {"format": (plain_text, f"{UNCONSTRAINED}; only the type text is")}
_REASONING: Refusals = {
    "context": (one_of("auto"), "the template decides which earlier reasoning is shown; see preserve_thinking"),
    "mode": (one_of("standard"), "there is one mode of reasoning"),
}
_TYPES: Mapping[str, type | tuple[type, ...]] = {"truncation": str, "service_tier": str, "background": bool}
_INCLUDED = "reasoning.encrypted_content"
_KNOWN = frozenset(attrs.fields_dict(ResponsesBody)) | frozenset(_SDK_FIELDS) | frozenset(_EXTENSIONS)


def refused_by_name() -> frozenset[str]:
    """Names of the fields that are known and refused at some value or at every one."""
    return frozenset(_SDK_FIELDS) | frozenset(_EXTENSIONS) | frozenset(_VALUES)


def refuse_fields_by_name(body: Mapping[str, JSONValue]) -> None:
    """Refuse the first top-level field that is unknown or asks for what is not offered.

    Raises:
        Unsupported: known and not offered (with this value).
        InvalidRequest: unknown (code unknown_parameter).
    """
    for name, value in body.items():
        if name in _KNOWN:
            continue
        path = shown_name(name)
        if name == "grammar" or name.startswith(GUIDED):
            raise unsupported(path, value, CONSTRAINED_ELSEWHERE)
        raise InvalidRequest(
            f"{path}: is no parameter of Responses; got {shown(value)}", code="unknown_parameter", param=path
        )
    refuse_fields(body, _SDK_FIELDS)
    refuse_fields(body, _EXTENSIONS)
    refuse_fields({name: value for name, value in body.items() if _has_its_type(name, value)}, _VALUES)
    for name, fields in (("text", _TEXT), ("reasoning", _REASONING)):
        members = body.get(name)
        if isinstance(members, dict):
            refuse_fields(members, fields, at=name)
    include = body.get("include")
    for at, value in enumerate(include if isinstance(include, list) else ()):
        if isinstance(value, str) and value != _INCLUDED:
            raise unsupported(f"include[{at}]", value, f"only {_INCLUDED} can be included")


def _has_its_type(name: str, value: JSONValue) -> bool:
    return isinstance(value, _TYPES.get(name, object))
