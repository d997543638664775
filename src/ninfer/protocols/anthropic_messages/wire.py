"""The members of a Messages request that are understood, with their types and ranges.

Only structure: what a value means is `decode`'s business, what is refused by name stands in `refused`. A content
block is structured by the class of its `type`, once it is known which; members that no class has are ignored (D10).
"""

from typing import Annotated, TypeAlias

import attrs

from ninfer.protocols.call_arguments import WireArguments
from ninfer.protocols.sampler_members import Candidates, Share, Temperature
from ninfer.protocols.structure import AnyObject, Array, Flag, Integer, String, Text

Name: TypeAlias = Annotated[str, String(non_empty=True)]
Blocks: TypeAlias = Annotated[str | tuple[AnyObject, ...], Array(or_string=True)]

EFFORTS = ("low", "medium", "high", "xhigh", "max")
TEXTS = (
    "system",
    "system[].text",
    "messages[].content",
    "messages[].content[].text",
    "messages[].content[].thinking",
    "messages[].content[].input.**",
    "messages[].content[].content",
    "messages[].content[].content[].text",
)
"""Where a body holds text, in which a character may have been cut."""


@attrs.frozen(kw_only=True)
class CacheControl:
    """The mark of a prefix worth keeping. The time is a hint: nothing is promised to stay (ANTH-039)."""

    type: Annotated[str, String(one_of=("ephemeral",))]
    ttl: Annotated[str, String(one_of=("5m", "1h"))] = "5m"


@attrs.frozen(kw_only=True)
class TextBlock:
    """Text of any role."""

    text: Text
    cache_control: CacheControl | None = None


@attrs.frozen(kw_only=True)
class ThinkingBlock:
    """Reasoning in the history. It cannot carry a cache mark of its own."""

    thinking: Text = ""
    signature: Text = ""


@attrs.frozen(kw_only=True)
class RedactedThinkingBlock:
    """Reasoning that only the service that made it can read."""

    data: Text = ""


@attrs.frozen(kw_only=True)
class ToolUseBlock:
    """A call that the model made."""

    id: Name
    name: Name
    input: WireArguments
    cache_control: CacheControl | None = None


@attrs.frozen(kw_only=True)
class ToolResultBlock:
    """What a call gave."""

    tool_use_id: Name
    content: Blocks = ()
    is_error: Flag = False
    cache_control: CacheControl | None = None


@attrs.frozen(kw_only=True)
class ToolReferenceBlock:
    """Inside a result: a deferred tool that is loaded from here on."""

    tool_name: Name
    cache_control: CacheControl | None = None


@attrs.frozen(kw_only=True)
class WireMessage:
    """One message."""

    role: Annotated[str, String(one_of=("user", "assistant", "system"))]
    content: Blocks


@attrs.frozen(kw_only=True)
class WireTool:
    """A tool that the caller defines and runs."""

    name: Name
    input_schema: AnyObject
    description: Text | None = None
    input_examples: Annotated[tuple[AnyObject, ...], Array()] = ()
    allowed_callers: Annotated[tuple[Text, ...], Array()] = ("direct",)
    defer_loading: Flag = False
    strict: Flag = False
    cache_control: CacheControl | None = None


@attrs.frozen(kw_only=True)
class ToolChoice:
    """Whether calls are wanted. `any` and `tool` are known, and refused elsewhere."""

    type: Annotated[str, String(one_of=("auto", "none", "any", "tool"))]
    disable_parallel_tool_use: Flag = False


@attrs.frozen(kw_only=True)
class Thinking:
    """What the caller says about reasoning."""

    type: Annotated[str, String(one_of=("enabled", "disabled", "adaptive"))]
    budget_tokens: Annotated[int, Integer()] | None = None
    display: Text = "summarized"


@attrs.frozen(kw_only=True)
class OutputConfig:
    """How the answer shall be; its `format` is refused by name."""

    effort: Annotated[str, String(one_of=EFFORTS)] | None = None


@attrs.frozen(kw_only=True)
class PromptBody:
    """What decides the prompt: all of a token count, and the same part of a request (ATOK-002)."""

    model: Annotated[str, String(non_empty=True, most_chars=512)]
    messages: Annotated[tuple[WireMessage, ...], Array(least=1)]
    system: Blocks = ()
    tools: Annotated[tuple[AnyObject, ...], Array()] = ()
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig = OutputConfig()
    cache_control: CacheControl | None = None
    preserve_thinking: Flag | None = None
    chat_template_kwargs: AnyObject = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class MessagesBody(PromptBody):
    """A request body, without what is advisory, ignored or refused by name."""

    max_tokens: Annotated[int, Integer(low=1)] | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Candidates | None = None
    stop_sequences: Annotated[tuple[Annotated[str, String(non_empty=True)], ...], Array(most=4)] = ()
    stream: Flag = False
