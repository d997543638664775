"""OpenAI's Chat Completions as a protocol plugin."""

from ninfer.protocols.openai_chat.routes import OpenAIChat

__all__ = ["OpenAIChat"]
