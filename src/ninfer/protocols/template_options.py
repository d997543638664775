"""`chat_template_kwargs` and the typed fields that say the same: one reading for all protocols (TMPL-013 to -017).

    options = template_options(body.get("chat_template_kwargs"), [Said("preserve_thinking", "preserve_thinking", True)])
    options.thinking, options.kwargs

Whoever says a standard option twice must say the same. It knows the names of the options, not what a template does
with them.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import attrs

from ninfer.conversation import EFFORTS, NO_EFFORT, InvalidRequest, ThinkingFields
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.refusal import unsupported
from ninfer.protocols.values import shown, shown_name

EFFORT_LEVELS = (NO_EFFORT, *EFFORTS)
"""What a request may name as its effort: the one that switches thinking off, and the template's."""

Option: TypeAlias = Literal["enable_thinking", "preserve_thinking", "reasoning_effort"]

_FIELD = "chat_template_kwargs"
_STANDARD: Mapping[str, Option] = {
    "enable_thinking": "enable_thinking",
    "preserve_thinking": "preserve_thinking",
    "reasoning_effort": "reasoning_effort",
}
_CONVERSATION = ("messages", "tools", "tool_choice", "documents", "add_generation_prompt", "continue_final_message")
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")
_RESERVED = frozenset(
    (*_CONVERSATION, *_TOKENS, "additional_special_tokens", "chat_template", "raise_exception", "strftime_now")
)
"""The conversation, the mode of generation, the tokenizer's own tokens (TMPL-016), and the template itself (D44)."""


@attrs.frozen
class Said:
    """A standard option as a typed field of the body gives it."""

    path: str
    option: Option
    value: bool | str


@attrs.frozen(kw_only=True)
class TemplateOptions:
    """What a request says to its template."""

    thinking: ThinkingFields
    kwargs: Mapping[str, object]
    """Variables beyond the standard ones, as they were received; null reaches the template as none."""


def template_options(kwargs: JSONValue, typed: Iterable[Said] = ()) -> TemplateOptions:
    """The options of a request whose body has `kwargs` as its `chat_template_kwargs`, agreed with its typed fields.

    Raises:
        InvalidRequest: not an object, a standard option of the wrong type, or two that contradict each other
            (code conflicting_template_option).
        Unsupported: a name that is not for callers to set.
    """
    if kwargs is not None and not isinstance(kwargs, dict):
        raise InvalidRequest(f"{_FIELD}: expected an object, got {shown(kwargs)}", code="invalid_type", param=_FIELD)
    said: dict[Option, Said] = {}
    for one in (*typed, *_standard(kwargs or {})):
        other = said.setdefault(one.option, one)
        if other.value != one.value:
            raise _conflict(other, one)
    enabled, effort = said.get("enable_thinking"), said.get("reasoning_effort")
    # An effort beside thinking that is switched off, or none beside thinking that is switched on (TMPL-017).
    if enabled is not None and effort is not None and enabled.value == (effort.value == NO_EFFORT):
        raise _conflict(effort, enabled)
    preserve = said.get("preserve_thinking")
    off = effort is not None and effort.value == NO_EFFORT
    return TemplateOptions(
        thinking=ThinkingFields(
            enabled=False if off else None if enabled is None else bool(enabled.value),
            preserve=None if preserve is None else bool(preserve.value),
            effort=None if effort is None or off else str(effort.value),
        ),
        kwargs={name: value for name, value in (kwargs or {}).items() if name not in _STANDARD},
    )


def _standard(kwargs: Mapping[str, JSONValue]) -> Iterable[Said]:
    for name, value in kwargs.items():
        path = f"{_FIELD}.{shown_name(name)}"
        if name in _RESERVED:
            raise unsupported(path, value, "a request cannot set this variable of the template")
        option = _STANDARD.get(name)
        if option is None or value is None:
            continue
        if option == "reasoning_effort":
            if value not in EFFORT_LEVELS:
                raise InvalidRequest(
                    f"{path}: expected one of {', '.join(EFFORT_LEVELS)}, got {shown(value)}", param=path
                )
        elif not isinstance(value, bool):
            raise InvalidRequest(f"{path}: expected a boolean, got {shown(value)}", code="invalid_type", param=path)
        assert isinstance(value, bool | str)
        yield Said(path, option, value)


def _conflict(one: Said, other: Said) -> InvalidRequest:
    return InvalidRequest(
        f"{one.path}: {shown(one.value)} contradicts {other.path}: {shown(other.value)}",
        code="conflicting_template_option",
        param=one.path,
    )
