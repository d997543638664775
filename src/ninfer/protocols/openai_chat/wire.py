"""The members of a Chat Completions request that are understood, with their types and ranges.

Only structure: what a value means is `decode`'s business, what is refused by name stands in `refused`. Members that no
class here has are ignored (D10).
"""

from typing import Annotated

import attrs

from ninfer.protocols.call_arguments import WireArguments
from ninfer.protocols.function_tools import FunctionTool
from ninfer.protocols.sampler_members import SamplerMembers
from ninfer.protocols.structure import AnyObject, Array, Flag, Integer, String, Text
from ninfer.protocols.template_options import EFFORT_LEVELS

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
SERVER_EFFORTS = ("default", "auto")
"""Efforts that leave it to the server (CHAT-025)."""
TEXTS = (
    "messages[].content",
    "messages[].content[].text",
    "messages[].content[].refusal",
    "messages[].refusal",
    "messages[].reasoning_content",
    "messages[].reasoning",
    "messages[].tool_calls[].function.arguments.**",
    "messages[].tool_calls[].custom.input",
    "messages[].function_call.arguments.**",
)
"""Where a body holds text, in which a character may have been cut."""


@attrs.frozen(kw_only=True)
class WirePart:
    """One part of an array-form content. Which member counts is said by `type`."""

    type: Text
    text: Text | None = None
    refusal: Text | None = None


@attrs.frozen(kw_only=True)
class CalledFunction:
    """A function that was called; clients write no arguments as an empty string, or leave them out."""

    name: Annotated[str, String(non_empty=True)]
    arguments: WireArguments = ""


@attrs.frozen(kw_only=True)
class CalledCustom:
    """A free-form tool that was called."""

    name: Annotated[str, String(non_empty=True)]
    input: Text = ""


@attrs.frozen(kw_only=True)
class WireCall:
    """A call of the history."""

    id: Annotated[str, String(non_empty=True)]
    type: Annotated[str, String(one_of=("function", "custom"))] = "function"
    function: CalledFunction | None = None
    custom: CalledCustom | None = None


@attrs.frozen(kw_only=True)
class WireMessage:
    """One message; which roles need a content is said by `history`."""

    role: Annotated[str, String(one_of=ROLES)]
    content: Annotated[str | tuple[AnyObject, ...], Array(or_string=True)] | None = None
    name: Text | None = None
    refusal: Text | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    tool_calls: Annotated[tuple[WireCall, ...], Array()] = ()
    function_call: CalledFunction | None = None
    tool_call_id: Text | None = None


@attrs.frozen(kw_only=True)
class CustomTool:
    """A free-form tool as it is declared."""

    name: Text
    description: Text | None = None
    format: AnyObject | None = None


@attrs.frozen(kw_only=True)
class WireTool:
    """A declared tool."""

    type: Annotated[str, String(one_of=("function", "custom"))]
    function: FunctionTool | None = None
    custom: CustomTool | None = None


@attrs.frozen(kw_only=True)
class StreamOptions:
    """`stream_options`; obfuscation asks for nothing that we send."""

    include_usage: Flag = False


@attrs.frozen(kw_only=True)
class ChatBody(SamplerMembers):
    """A request body, without what is advisory, ignored or refused by name."""

    model: Text
    messages: Annotated[tuple[WireMessage, ...], Array(least=1)]
    max_tokens: Annotated[int, Integer(low=0)] | None = None
    max_completion_tokens: Annotated[int, Integer(low=0)] | None = None
    stop: Annotated[str | tuple[Annotated[str, String(non_empty=True)], ...], Array(most=4, or_string=True)] = ()
    n: Annotated[int, Integer()] = 1
    stream: Flag = False
    stream_options: StreamOptions = StreamOptions()
    tools: Annotated[tuple[AnyObject, ...], Array()] = ()
    parallel_tool_calls: Flag = True
    enable_thinking: Flag | None = None
    preserve_thinking: Flag | None = None
    reasoning_effort: Annotated[str, String(one_of=(*EFFORT_LEVELS, *SERVER_EFFORTS))] | None = None
    chat_template_kwargs: AnyObject = attrs.field(factory=dict)
    timings_per_token: Flag = False
    return_progress: Flag = False
