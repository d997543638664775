"""`POST /v1/messages` and its token count: the protocol itself. All it does goes through the plugin interface."""

from collections.abc import Sequence
from typing import cast
from uuid import uuid4

import attrs

from ninfer.conversation import RequestError
from ninfer.protocols.anthropic_messages.decode import PLACES, MessagesCall, decode, decode_count
from ninfer.protocols.anthropic_messages.encode import Head, MessageEncoder, WireEvent, aggregate
from ninfer.protocols.anthropic_messages.errors import anthropic_error, anthropic_stream_error
from ninfer.protocols.anthropic_messages.order import OrderChecker
from ninfer.protocols.anthropic_messages.wire import TEXTS, MessagesBody, PromptBody
from ninfer.protocols.places import located, placed
from ninfer.protocols.plugin import Call, Route, WireError
from ninfer.protocols.sse import frame_data
from ninfer.service.host import ProtocolHost


@attrs.frozen
class AnthropicMessages:
    """Anthropic's Messages."""

    host: ProtocolHost

    name = "anthropic_messages"
    request_id_header = "request-id"

    def routes(self) -> Sequence[Route]:
        """Generation and token count."""
        return (
            Route("POST", "/v1/messages", self.create, summary="Generate one message.", body=MessagesBody),
            Route("POST", "/v1/messages/count_tokens", self.count_tokens, summary="Count the prompt.", body=PromptBody),
        )

    def error(self, error: RequestError, request_id: str) -> WireError:
        """Anthropic's envelope."""
        return anthropic_error(error, request_id)

    def stream_error(self, error: RequestError, request_id: str) -> bytes:
        """An `error` event with the same envelope; nothing follows."""
        return anthropic_stream_error(error, request_id)

    async def create(self, call: Call) -> None:
        """Generate one message. The model's name selects nothing: there is one model (ANTH-046)."""
        asked = await call.decoded(decode, texts=TEXTS)
        encoder = MessageEncoder(Head(id=f"msg_{uuid4().hex}", model=asked.model), show_thinking=asked.show_thinking)
        if asked.stream:
            await self._stream(call, asked, encoder)
            return
        async with placed(self.host.generate(asked.request), asked.places) as events:
            answer = await aggregate(encoder, events)
        await call.reply(answer)

    async def count_tokens(self, call: Call) -> None:
        """Count the prompt that `create` would make of the same body."""
        request = await call.decoded(decode_count, texts=TEXTS)
        with located(PLACES):
            tokens = await self.host.count_tokens(request)
        await call.reply({"input_tokens": tokens})

    async def _stream(self, call: Call, asked: MessagesCall, encoder: MessageEncoder) -> None:
        checker = OrderChecker() if self.host.flags.check_events else None
        async with call.stream() as sink, placed(self.host.generate(asked.request), asked.places) as events:
            async for event in events:
                for frame in encoder.frames(event):
                    if checker is not None:
                        checker.add(cast(WireEvent, frame_data(frame)))
                    await sink.send(frame)
