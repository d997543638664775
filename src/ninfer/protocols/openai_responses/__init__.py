"""OpenAI's Responses as a protocol plugin."""

from ninfer.protocols.openai_responses.routes import OpenAIResponses

__all__ = ["OpenAIResponses"]
