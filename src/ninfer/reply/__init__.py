"""Replies: tokens to text events. Detokenizer, reasoning channel, stop strings; no prompts, no engine, no protocols."""

from ninfer.reply.reader import ReplyReader, ReplyTokens

__all__ = ["ReplyReader", "ReplyTokens"]
