"""Anthropic's Messages as a protocol plugin."""

from ninfer.protocols.anthropic_messages.routes import AnthropicMessages

__all__ = ["AnthropicMessages"]
