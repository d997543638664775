"""What a Chat request may name but not get: each capability with the value that asks for nothing (D10, D11, D40).

A field is refused only where its value asks for behaviour; every message names the field and the guarantee that
cannot be given. What is in no table here and in no wire type is advisory or unknown, and ignored.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ninfer.conversation import InvalidRequest, Unsupported
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.values import shown

Neutral: TypeAlias = Callable[[JSONValue], bool]


def _is(*values: JSONValue) -> Neutral:
    # 1 == True in Python but not in JSON
    return lambda value: any(value == known and isinstance(value, bool) == isinstance(known, bool) for known in values)


def _empty(value: JSONValue) -> bool:
    return value in ([], {})


def _all_zero(value: JSONValue) -> bool:
    return isinstance(value, dict) and all(bias == 0 and not isinstance(bias, bool) for bias in value.values())


def _only_nulls(value: JSONValue) -> bool:
    return isinstance(value, dict) and all(member is None for member in value.values())


def _text_only(value: JSONValue) -> bool:
    return value == ["text"]


def _plain_text(value: JSONValue) -> bool:
    return isinstance(value, dict) and value.get("type") == "text"


def _never(value: JSONValue) -> bool:
    return False


_BOOLEANS = _is(True, False)

_FIELDS: Mapping[str, tuple[Neutral, str]] = {
    # field -> what asks for nothing, and the guarantee that is not given
    "tools": (_empty, "function calls are not in this build"),
    "tool_choice": (_is("auto", "none"), "function calls are not in this build"),
    "functions": (_empty, "legacy function calls are not offered; use tools"),
    "function_call": (_is("auto", "none"), "legacy function calls are not offered; use tools"),
    "parallel_tool_calls": (_BOOLEANS, "it is a boolean"),
    "tool_constraints": (_is("basic", "auto"), "it is one of basic and auto"),
    "response_format": (_plain_text, "constrained output is not in this build; only the type text is"),
    "structured_outputs": (_never, "constrained output is not in this build"),
    "grammar": (_never, "output is constrained through structured_outputs, not through this name"),
    "logprobs": (_is(False), "log probabilities are not computed"),
    "top_logprobs": (_is(0), "log probabilities are not computed"),
    "logit_bias": (_all_zero, "logits are not biased"),
    "store": (_is(False), "completions are not stored"),
    "n": (_is(1), "one choice is generated for a request"),
    "modalities": (_text_only, "the only output is text"),
    "web_search_options": (_never, "nothing is searched on the web"),
    "moderation": (_never, "nothing is moderated"),
    "verbosity": (_is("medium"), "the length of answers cannot be steered"),
    "reasoning_effort": (_is("none", "default", "auto"), "effort levels are not in this build"),
    "repetition_penalty": (_is(1), "presence_penalty and frequency_penalty are the penalties that are applied"),
    "mm_processor_kwargs": (_only_nulls, "media processing cannot be configured"),
    "chat_template": (_never, "the template is fixed when the server starts"),
    "timings_per_token": (_is(False), "timings inside a stream are not in this build"),
    "return_progress": (_is(False), "progress chunks are not in this build"),
}

_TEMPLATE_KWARGS = frozenset({"enable_thinking", "preserve_thinking"})


def refuse_unsupported(body: Mapping[str, JSONValue]) -> None:
    """Raise `Unsupported` for the first field that asks for what is not offered."""
    for name, value in body.items():
        if value is None:
            continue
        if name.startswith("guided_"):
            raise unsupported(name, value, "output is constrained through structured_outputs, not through this name")
        if name in _FIELDS:
            neutral, guarantee = _FIELDS[name]
            if not neutral(value):
                raise unsupported(name, value, guarantee)
    _refuse_kwargs(body.get("chat_template_kwargs"))
    messages = body.get("messages")
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            _refuse_in_message(f"messages[{at}]", message)


def unsupported(path: str, value: JSONValue, guarantee: str) -> Unsupported:
    """The refusal of `value` at `path`; `guarantee` says what cannot be promised."""
    return Unsupported(f"{path}: {shown(value)} is not supported: {guarantee}", param=path)


def _refuse_kwargs(kwargs: JSONValue) -> None:
    if kwargs is None:
        return
    if not isinstance(kwargs, dict):
        raise InvalidRequest(
            f"chat_template_kwargs: expected an object, got {shown(kwargs)}",
            code="invalid_type",
            param="chat_template_kwargs",
        )
    for name, value in kwargs.items():
        if name not in _TEMPLATE_KWARGS:
            path = f"chat_template_kwargs.{shown(name)[1:-1] if len(name) <= 60 else '...'}"
            raise unsupported(path, value, "only enable_thinking and preserve_thinking are passed to the template")


def _refuse_in_message(path: str, message: Mapping[str, JSONValue]) -> None:
    for name in ("tool_calls", "function_call", "audio"):
        value = message.get(name)
        if value is not None and not _empty(value):
            raise unsupported(f"{path}.{name}", value, "only text is carried over from earlier turns in this build")
    content = message.get("content")
    for at, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("image_url", "video_url"):
            raise Unsupported(
                f"{path}.content[{at}]: a part of type {shown(kind)} needs vision, which is not in this build",
                code="vision_disabled",
                param=f"{path}.content[{at}]",
            )
        if kind in ("input_audio", "file"):
            raise unsupported(f"{path}.content[{at}]", kind, "audio and files are not read")
