"""`ProtocolHost`: all that a protocol may use of this server."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol as Interface

from ninfer.conversation import Event, GenerationRequest, ModelCard


class ProtocolHost(Interface):
    """The one request path, as protocols see it."""

    @property
    def model(self) -> ModelCard:
        """What clients may know of the loaded model."""
        ...

    def check_model(self, model: str) -> None:
        """Raise `NotFound` (code model_not_found, param "model") unless `model` is the public id."""
        ...

    def generate(self, request: GenerationRequest) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Run one generation. The block is the request: leaving it cancels and frees everything.

        Entering prepares the prompt and waits for nothing else; the iterator yields events in the order that
        `conversation.events` states and raises `RequestError` where the generation fails.
        """
        ...
