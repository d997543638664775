"""`chat_template_kwargs`: variables that a caller hands to the chat template (TMPL-013 to TMPL-017).

The standard options among them mean the same as a protocol's typed fields and must agree with those; what the house
itself says to the template cannot be overridden. Shared by the protocols; it knows no template.
"""

from collections.abc import Mapping
from typing import TypeVar

import attrs

from ninfer.conversation import InvalidRequest, ThinkingFields
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.values import shown

_Option = TypeVar("_Option", bool | None, str | None)

FIELD = "chat_template_kwargs"
RESERVED = frozenset(
    {
        "messages",
        "tools",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template",
        "bos_token",
        "eos_token",
        "pad_token",
        "unk_token",
    }
)


@attrs.frozen(kw_only=True)
class TypedOptions:
    """The standard options as a protocol's own fields give them, and the path of the field behind each."""

    enabled: bool | None = None
    enabled_path: str = "enable_thinking"
    preserve: bool | None = None
    effort: str | None = None
    effort_path: str = "reasoning_effort"
    budget_tokens: int | None = None


@attrs.frozen(kw_only=True)
class TemplateOptions:
    """Typed fields and `chat_template_kwargs` as one."""

    thinking: ThinkingFields
    others: Mapping[str, JSONValue]
    """Variables beside the standard ones; null is the template's none."""


def merge_kwargs(kwargs: Mapping[str, JSONValue], typed: TypedOptions) -> TemplateOptions:
    """What `typed` and `kwargs` say together. A standard option that is null says nothing.

    Effort "none" switches thinking off.

    Raises:
        InvalidRequest: they contradict each other (code conflicting_template_option), a standard option has the
            wrong type, or the name is not the caller's to set.
    """
    for name in kwargs:
        if name in RESERVED:
            raise InvalidRequest(
                f"{FIELD}.{name}: cannot be set, the server says it to the template itself", param=f"{FIELD}.{name}"
            )
    enabled = _agreed(typed.enabled, typed.enabled_path, "enable_thinking", _flag(kwargs, "enable_thinking"))
    preserve = _agreed(typed.preserve, "preserve_thinking", "preserve_thinking", _flag(kwargs, "preserve_thinking"))
    effort = _agreed(typed.effort, typed.effort_path, "reasoning_effort", _word(kwargs, "reasoning_effort"))
    if effort == "none":
        if enabled:
            path = f"{FIELD}.reasoning_effort" if typed.effort is None else typed.effort_path
            raise _conflict(path, "thinking that is switched on")
        enabled, effort = False, None
    return TemplateOptions(
        thinking=ThinkingFields(enabled=enabled, preserve=preserve, effort=effort, budget_tokens=typed.budget_tokens),
        others={name: value for name, value in kwargs.items() if name not in _STANDARD},
    )


_STANDARD = frozenset({"enable_thinking", "preserve_thinking", "reasoning_effort"})


def _flag(kwargs: Mapping[str, JSONValue], name: str) -> bool | None:
    value = kwargs.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise _wrong_type(name, "a boolean", value)


def _word(kwargs: Mapping[str, JSONValue], name: str) -> str | None:
    value = kwargs.get(name)
    if value is None or isinstance(value, str):
        return value
    raise _wrong_type(name, "a string", value)


def _wrong_type(name: str, expected: str, value: JSONValue) -> InvalidRequest:
    path = f"{FIELD}.{name}"
    return InvalidRequest(f"{path}: expected {expected}, got {shown(value)}", code="invalid_type", param=path)


def _agreed(typed: _Option, path: str, name: str, in_kwargs: _Option) -> _Option:
    if typed is not None and in_kwargs is not None and typed != in_kwargs:
        raise _conflict(path, f"{FIELD}.{name}: {shown(in_kwargs)}")
    return in_kwargs if typed is None else typed


def _conflict(path: str, other: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: contradicts {other}", code="conflicting_template_option", param=path)
