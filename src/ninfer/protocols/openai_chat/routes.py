"""`POST /v1/chat/completions`: the protocol itself. Everything it does goes through the plugin interface."""

import time
from collections.abc import Sequence
from uuid import uuid4

import attrs

from ninfer.conversation import RequestError
from ninfer.protocols.openai_chat.decode import ChatCall, decode
from ninfer.protocols.openai_chat.encode import ChunkEncoder, Head, aggregate
from ninfer.protocols.openai_chat.order import OrderChecker
from ninfer.protocols.openai_chat.wire import TEXTS, ChatBody
from ninfer.protocols.openai_errors import openai_error, openai_stream_error
from ninfer.protocols.places import placed
from ninfer.protocols.plugin import Call, Route, WireError
from ninfer.protocols.sse import DONE, DONE_DATA, frame_data
from ninfer.service.host import ProtocolHost


@attrs.frozen
class OpenAIChat:
    """OpenAI's Chat Completions."""

    host: ProtocolHost

    name = "openai_chat"
    request_id_header = "x-request-id"
    new_encoder = ChunkEncoder

    def routes(self) -> Sequence[Route]:
        """One route."""
        return (Route("POST", "/v1/chat/completions", self.create, summary="Generate one completion.", body=ChatBody),)

    def error(self, error: RequestError, request_id: str) -> WireError:
        """OpenAI's envelope."""
        return openai_error(error)

    def stream_error(self, error: RequestError, request_id: str) -> bytes:
        """One unnamed event with the same envelope; no finish reason, no usage and no [DONE] follow (CHAT-042)."""
        return openai_stream_error(error)

    async def create(self, call: Call) -> None:
        """Generate one completion."""
        chat = await call.decoded(decode, texts=TEXTS)
        self.host.check_model(chat.model)
        head = Head(id=f"chatcmpl-{uuid4().hex}", created=int(time.time()), model=self.host.model.id)
        if chat.stream:
            await self._stream(call, chat, head)
            return
        async with placed(self.host.generate(chat.request), chat.places) as events:
            answer = await aggregate(head, chat.shape, events)
        await call.reply(answer)

    async def _stream(self, call: Call, chat: ChatCall, head: Head) -> None:
        flags = self.host.flags
        encoder = self.new_encoder(head, attrs.evolve(chat.shape, usage_chunk_choice=flags.usage_chunk_choice))
        checker = OrderChecker() if flags.check_events else None
        async with call.stream() as sink, placed(self.host.generate(chat.request), chat.places) as events:
            async for event in events:
                for frame in encoder.frames(event):
                    if checker is not None:
                        checker.add(frame_data(frame))
                    await sink.send(frame)
            if checker is not None:
                checker.add(DONE_DATA)
            await sink.send(DONE)
