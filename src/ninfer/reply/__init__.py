"""Replies: tokens to text events. Detokenizer, reasoning channel, stop strings, tool calls; no prompts, no engine."""

from ninfer.reply.reader import ReplyReader, ReplyTokens
from ninfer.reply.tool_markup import Fallback
from ninfer.reply.tools import ParsedCall, ToolDiagnostics, ToolFront, ToolOutcome, recover_from_reasoning

__all__ = [
    "Fallback",
    "ParsedCall",
    "ReplyReader",
    "ReplyTokens",
    "ToolDiagnostics",
    "ToolFront",
    "ToolOutcome",
    "recover_from_reasoning",
]
