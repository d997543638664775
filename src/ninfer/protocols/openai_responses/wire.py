"""The members of a Responses request that are understood, with their types and ranges.

Only structure: which members of an Item count is said by its `type` and checked by `items`; what is refused by name
stands in `fields`.
"""

from collections.abc import Callable
from typing import Annotated

import attrs

from ninfer.protocols.call_arguments import WireArguments
from ninfer.protocols.sampler_members import Share, Temperature
from ninfer.protocols.structure import AnyObject, Array, Flag, Integer, String, Text
from ninfer.protocols.template_options import EFFORT_LEVELS

TEXTS = (
    "instructions",
    "input",
    "input[].content",
    "input[].content[].text",
    "input[].content[].refusal",
    "input[].summary[].text",
    "input[].encrypted_content",
    "input[].arguments.**",
    "input[].output",
    "input[].output[].text",
)
"""Where a body holds text, in which a character may have been cut."""


@attrs.frozen
class AsItIs:
    """A member whose forms differ too much for one type: `tools` reads it."""

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """The value itself."""
        return value


Named = Annotated[str, String(non_empty=True)]
Label = Annotated[str, String(most_chars=512)]
"""What the caller says for itself, and every event that holds the Response repeats. OpenAI takes 64 characters; clients
that were made for other servers send a few more."""


@attrs.frozen(kw_only=True)
class Breakpoint:
    """`prompt_cache_breakpoint` of a part; there is one mode."""

    mode: Annotated[str, String(one_of=("explicit",))]


@attrs.frozen(kw_only=True)
class WirePart:
    """One part of an array-form content or output."""

    type: Text
    text: Text | None = None
    refusal: Text | None = None
    prompt_cache_breakpoint: Breakpoint | None = None


@attrs.frozen(kw_only=True)
class WireItem:
    """The members of all kinds of Items; a message may leave out its type."""

    type: Text | None = None
    id: Named | None = None
    status: Text | None = None
    role: Annotated[str, String(one_of=("user", "assistant", "system", "developer"))] | None = None
    content: Annotated[str | tuple[WirePart, ...], Array(or_string=True)] | None = None
    phase: Text | None = None
    summary: Annotated[tuple[WirePart, ...], Array()] = ()
    encrypted_content: Text | None = None
    call_id: Named | None = None
    namespace: Named | None = None
    name: Named | None = None
    arguments: WireArguments | None = None
    output: Annotated[str | tuple[WirePart, ...], Array(or_string=True)] | None = None


@attrs.frozen(kw_only=True)
class WireReasoning:
    """`reasoning`; `generate_summary` is the old name of `summary`."""

    effort: Annotated[str, String(one_of=EFFORT_LEVELS)] | None = None
    summary: Label | None = None
    generate_summary: Label | None = None


@attrs.frozen(kw_only=True)
class TextOptions:
    """`text`: verbosity is advisory (D33); the formats that are offered stand in `fields`."""

    format: AnyObject | None = None
    verbosity: Label | None = None


@attrs.frozen(kw_only=True)
class CacheOptions:
    """`prompt_cache_options`: a lifetime is accepted and promises nothing (CACHE-HINT-012)."""

    mode: Annotated[str, String(one_of=("implicit", "explicit"))] = "implicit"
    ttl: Text | None = None


@attrs.frozen(kw_only=True)
class StreamOptions:
    """`stream_options`: no padding is sent either way (RESP-025)."""

    include_obfuscation: Flag | None = None


@attrs.frozen(kw_only=True)
class ResponsesBody:
    """A request body: the fields that are known and not refused by name."""

    model: Named
    input: Annotated[str | tuple[AnyObject, ...], Array(or_string=True)] = ()
    instructions: Text | None = None
    previous_response_id: Text | None = None
    max_output_tokens: Annotated[int, Integer(low=0)] | None = None
    stream: Flag = False
    store: Flag = True
    temperature: Temperature | None = None
    top_p: Share | None = None
    metadata: AnyObject | None = None
    client_metadata: AnyObject | None = None
    reasoning: WireReasoning = WireReasoning()
    chat_template_kwargs: AnyObject | None = None
    preserve_thinking: Flag | None = None
    text: TextOptions = TextOptions()
    tools: Annotated[tuple[AnyObject, ...], Array()] = ()
    tool_choice: Annotated[object, AsItIs()] = None
    parallel_tool_calls: Flag = True
    max_tool_calls: Annotated[int, Integer(low=0)] | None = None
    truncation: Text | None = None
    top_logprobs: Annotated[int, Integer(low=0)] = 0
    service_tier: Text | None = None
    background: Flag = False
    include: Annotated[tuple[Text, ...], Array()] = ()
    stream_options: StreamOptions = StreamOptions()
    prompt_cache_key: Label | None = None
    prompt_cache_options: CacheOptions = CacheOptions()
    prompt_cache_retention: Annotated[str, String(one_of=("in_memory", "in-memory", "24h"))] | None = None
    safety_identifier: Label | None = None
    user: Label | None = None
