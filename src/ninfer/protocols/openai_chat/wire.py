"""The members of a Chat Completions request that are understood, with their types and ranges.

Only structure: what a value means is `decode`'s business, what is refused by name stands in `refused`.
"""

from typing import Annotated

import attrs

from ninfer.protocols.structure import Array, Flag, Integer, Number, String, Text

INT64 = 1 << 63
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


@attrs.frozen(kw_only=True)
class WirePart:
    """One part of an array-form content. Which member counts is said by `type`."""

    type: Text
    text: Text | None = None
    refusal: Text | None = None


@attrs.frozen(kw_only=True)
class WireMessage:
    """One message; null content is no content."""

    role: Annotated[str, String(one_of=ROLES)]
    content: Annotated[str | tuple[WirePart, ...], Array(or_string=True)] = ""
    name: Text | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None


@attrs.frozen(kw_only=True)
class StreamOptions:
    """`stream_options`; obfuscation asks for nothing that we send."""

    include_usage: Flag = False


@attrs.frozen(kw_only=True)
class TemplateKwargs:
    """The standard members of `chat_template_kwargs`."""

    enable_thinking: Flag | None = None
    preserve_thinking: Flag | None = None


@attrs.frozen(kw_only=True)
class ChatBody:
    """A request body, without what is advisory, ignored or refused by name."""

    model: Text
    messages: Annotated[tuple[WireMessage, ...], Array(least=1)]
    max_tokens: Annotated[int, Integer(low=0)] | None = None
    max_completion_tokens: Annotated[int, Integer(low=0)] | None = None
    temperature: Annotated[float, Number(0, 2)] | None = None
    top_p: Annotated[float, Number(0, 1)] | None = None
    top_k: Annotated[int, Integer(low=0, high=20)] | None = None
    min_p: Annotated[float, Number(0, 1)] | None = None
    presence_penalty: Annotated[float, Number(-2, 2)] | None = None
    frequency_penalty: Annotated[float, Number(-2, 2)] | None = None
    seed: Annotated[int, Integer(low=-INT64, high=INT64 - 1)] | None = None
    stop: Annotated[str | tuple[Annotated[str, String(non_empty=True)], ...], Array(most=4, or_string=True)] = ()
    n: Annotated[int, Integer()] = 1
    stream: Flag = False
    stream_options: StreamOptions = StreamOptions()
    enable_thinking: Flag | None = None
    preserve_thinking: Flag | None = None
    chat_template_kwargs: TemplateKwargs = TemplateKwargs()
