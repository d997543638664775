"""What a Chat request may name but not get: each capability with the value that asks for nothing (D10, D11, D40, D44).

A field is refused only where its value asks for behaviour; every message names the field and the guarantee that
cannot be given. What is in no table here and in no wire type is advisory or unknown, and ignored.
"""

from collections.abc import Mapping

from ninfer.conversation import InvalidRequest, RequestError
from ninfer.protocols.other_servers import OTHER_SERVERS
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.refusal import (
    CONSTRAINED_ELSEWHERE,
    OTHER_PROTOCOL,
    UNCONSTRAINED,
    Refusals,
    empty,
    needs_vision,
    never,
    nothing,
    one_of,
    plain_text,
    refuse_fields,
    refuse_guided,
    unsupported,
)
from ninfer.protocols.values import shown

_LEGACY = "legacy function calls are not offered; use tools"
_NO_LOGPROBS = "log probabilities are not computed"


def _all_zero(value: JSONValue) -> bool:
    return isinstance(value, dict) and all(bias == 0 and not isinstance(bias, bool) for bias in value.values())


def _only_nulls(value: JSONValue) -> bool:
    return isinstance(value, dict) and all(member is None for member in value.values())


_FIELDS: Refusals = {
    # field -> what asks for nothing, and the guarantee that is not given
    **OTHER_SERVERS,
    "input": (nothing, f"{OTHER_PROTOCOL}; Chat has messages"),
    "instructions": (nothing, f"{OTHER_PROTOCOL}; Chat has a message with the role system"),
    "max_output_tokens": (never, f"{OTHER_PROTOCOL}; Chat has max_completion_tokens"),
    "output_config": (_only_nulls, f"{OTHER_PROTOCOL}; Chat has reasoning_effort"),
    "random_seed": (never, f"{OTHER_PROTOCOL}; Chat has seed"),
    "reasoning": (_only_nulls, f"{OTHER_PROTOCOL}; Chat has reasoning_effort"),
    "stop_sequences": (nothing, f"{OTHER_PROTOCOL}; Chat has stop"),
    "system": (nothing, f"{OTHER_PROTOCOL}; Chat has a message with the role system"),
    "thinking": (_only_nulls, f"{OTHER_PROTOCOL}; Chat has enable_thinking"),
    "functions": (empty, _LEGACY),
    "function_call": (one_of("auto", "none"), _LEGACY),
    "tool_constraints": (one_of("basic", "auto"), "it is one of basic and auto"),
    "response_format": (plain_text, f"{UNCONSTRAINED}; only the type text is"),
    "structured_outputs": (never, UNCONSTRAINED),
    "grammar": (never, CONSTRAINED_ELSEWHERE),
    "logprobs": (one_of(False), _NO_LOGPROBS),
    "top_logprobs": (one_of(0), _NO_LOGPROBS),
    "logit_bias": (_all_zero, "logits are not biased"),
    "store": (one_of(False), "completions are not stored"),
    "n": (one_of(1), "one choice is generated for a request"),
    "modalities": (one_of(["text"]), "the only output is text"),
    "web_search_options": (never, "nothing is searched on the web"),
    "moderation": (never, "nothing is moderated"),
    "verbosity": (one_of("medium"), "the length of answers cannot be steered"),
    "mm_processor_kwargs": (_only_nulls, "media processing cannot be configured"),
    "chat_template": (never, "the template is fixed when the server starts"),
}
_MESSAGE: Refusals = {
    "audio": (empty, "audio of earlier turns is not stored"),
}
_MEDIA = ("image_url", "video_url")
_UNREAD = {"input_audio": "audio is not read", "file": "files are not read"}


def refuse_unsupported(body: Mapping[str, JSONValue]) -> None:
    """Raise `Unsupported` for the first field that asks for what is not offered."""
    refuse_guided(body)
    refuse_fields(body, _FIELDS)
    messages = body.get("messages")
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            refuse_fields(message, _MESSAGE, at=f"messages[{at}]")


def refused_part(path: str, role: str, kind: str) -> RequestError:
    """Why a part of the type `kind` cannot stand at `path`, in a message of `role`."""
    if kind in _MEDIA:
        return needs_vision(path, kind)
    if kind in _UNREAD:
        return unsupported(path, kind, _UNREAD[kind])
    return InvalidRequest(
        f"{path}.type: {shown(kind)} is no part of a message with the role {role}", param=f"{path}.type"
    )
