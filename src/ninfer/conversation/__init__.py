"""The conversation IR: what every protocol is translated to and from.

Only frozen attrs classes, errors and the values of JSON: no I/O, no wire names, no tokens, no arrays. It imports
nothing of ours and is imported by every room but the engine.
"""

from ninfer.conversation.errors import (
    CannotContinue,
    ContextExceeded,
    EngineUnavailable,
    Forbidden,
    InternalError,
    InvalidRequest,
    NotFound,
    Overloaded,
    QueueTimeout,
    RequestError,
    RequestTooLarge,
    Unauthenticated,
    Unsupported,
)
from ninfer.conversation.events import (
    CallMade,
    Committed,
    Event,
    Finished,
    FinishReason,
    PromptProgress,
    Started,
    TextDelta,
    Timings,
    Usage,
)
from ninfer.conversation.json_values import MAX_DEPTH, JSONValue, is_deeper, well_formed, well_formed_value
from ninfer.conversation.request import EFFORTS, NO_EFFORT, GenerationRequest, ModelCard, SamplingFields, ThinkingFields
from ninfer.conversation.tools import MAX_TOOL_NAME_CHARS, TOOL_NAME, Tool, ToolCall
from ninfer.conversation.turns import CachePoint, Part, Reasoning, Role, Text, Turn

__all__ = [
    "EFFORTS",
    "MAX_DEPTH",
    "MAX_TOOL_NAME_CHARS",
    "NO_EFFORT",
    "TOOL_NAME",
    "CachePoint",
    "CallMade",
    "CannotContinue",
    "Committed",
    "ContextExceeded",
    "EngineUnavailable",
    "Event",
    "FinishReason",
    "Finished",
    "Forbidden",
    "GenerationRequest",
    "InternalError",
    "InvalidRequest",
    "JSONValue",
    "ModelCard",
    "NotFound",
    "Overloaded",
    "Part",
    "PromptProgress",
    "QueueTimeout",
    "Reasoning",
    "RequestError",
    "RequestTooLarge",
    "Role",
    "SamplingFields",
    "Started",
    "Text",
    "TextDelta",
    "ThinkingFields",
    "Timings",
    "Tool",
    "ToolCall",
    "Turn",
    "Unauthenticated",
    "Unsupported",
    "Usage",
    "is_deeper",
    "well_formed",
    "well_formed_value",
]
