"""`ProtocolHost`: all that a protocol may use of this server; `ServiceHost`: what the server itself needs besides.

Interfaces only. The one implementation is `service.service.Service`; tests bring fakes.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol as Interface

import attrs

from ninfer.conversation import Event, GenerationRequest, ModelCard


@attrs.frozen(kw_only=True)
class ProtocolFlags:
    """Process flags that change how a protocol writes its answers."""

    usage_chunk_choice: bool = False
    """The streamed usage chunk of Chat carries one zero-delta choice instead of none (CHAT-019)."""
    response_store_max_records: int = 1024
    """Most Responses that are stored (RSTORE-002)."""
    response_store_max_mib: int = 256
    """What stored Responses and the Items behind them may take in all."""
    check_events: bool = False
    """Judge the order of every event before it is sent: a stream that breaks the rules fails instead."""


class ProtocolHost(Interface):
    """The one request path, as protocols see it."""

    @property
    def model(self) -> ModelCard:
        """What clients may know of the loaded model."""
        ...

    @property
    def flags(self) -> ProtocolFlags:
        """Process flags that concern protocols."""
        ...

    def check_model(self, model: str) -> None:
        """Raise `NotFound` (code model_not_found, param "model") unless `model` is the public id."""
        ...

    async def count_tokens(self, request: GenerationRequest) -> int:
        """The tokens of the prompt that `generate` would make of `request`, without generating.

        Raises:
            RequestError: the prompt cannot be made, or all places for counts are taken.
        """
        ...

    def generate(self, request: GenerationRequest) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Run one generation. The block is the request: leaving it cancels and frees everything.

        Entering prepares the prompt and waits for nothing else; the iterator yields events in the order that
        `conversation.events` states and raises `RequestError` where the generation fails.
        """
        ...


class ServiceHost(ProtocolHost, Interface):
    """What the server asks of the service besides."""

    @property
    def accepts_work(self) -> bool:
        """Whether anything can be generated; false after a failure of the whole engine. A full queue is no failure."""
        ...

    @property
    def starting(self) -> bool:
        """Whether the model is still being loaded; nothing is accepted until it is there."""
        ...
