"""OpenAI's legacy completions over the plugin interface: one prompt string in, one text out.

It knows the wire form of /v1/completions and nothing of tokens or of the engine.
"""

import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated
from uuid import uuid4

import attrs

from ninfer.conversation import (
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    RequestError,
    TextDelta,
    Turn,
)
from ninfer.conversation import Text as TextPart
from ninfer.protocols.openai_errors import openai_error, openai_stream_error
from ninfer.protocols.plugin import Call, ProtocolHost, Route, WireError
from ninfer.protocols.sampler_members import SamplerMembers
from ninfer.protocols.sse import DONE, data_frame
from ninfer.protocols.structure import Integer, structure

LIMITS = (FinishReason.OUTPUT_LIMIT, FinishReason.CONTEXT_LIMIT)


@attrs.frozen(kw_only=True)
class Body(SamplerMembers):
    """The members of a request that are understood."""

    model: str
    prompt: str
    max_tokens: Annotated[int, Integer(low=0)] = 16
    stream: bool = False


@attrs.frozen
class LegacyCompletions:
    """The protocol."""

    host: ProtocolHost

    name = "legacy_completions"
    request_id_header = "x-request-id"

    def routes(self) -> Sequence[Route]:
        """One route."""
        return (Route("POST", "/v1/completions", self.create, summary="Complete one prompt.", body=Body),)

    def error(self, error: RequestError, request_id: str) -> WireError:
        """OpenAI's envelope."""
        return openai_error(error)

    def stream_error(self, error: RequestError, request_id: str) -> bytes:
        """The same envelope as the last event."""
        return openai_stream_error(error)

    async def create(self, call: Call) -> None:
        """Complete one prompt."""
        body = await call.decoded(lambda body: structure(body, Body))
        self.host.check_model(body.model)
        request = GenerationRequest(
            turns=(Turn(role="user", parts=(TextPart(body.prompt),)),),
            sampling=body.sampling(),
            max_output_tokens=body.max_tokens,
        )
        head = {"id": f"cmpl-{uuid4().hex}", "object": "text_completion", "created": int(time.time())}
        head["model"] = self.host.model.id
        if body.stream:
            async with call.stream() as sink, self.host.generate(request) as events:
                async for text, reason in pieces(events):
                    await sink.send(data_frame({**head, "choices": [choice(text, reason)]}))
                await sink.send(DONE)
        else:
            async with self.host.generate(request) as events:
                found = [piece async for piece in pieces(events)]
            await call.reply({**head, "choices": [choice("".join(text for text, _ in found), found[-1][1])]})


async def pieces(events: AsyncIterator[Event]) -> AsyncIterator[tuple[str, str | None]]:
    """New text, with a finish reason in the last piece; reasoning has no place in this API."""
    async for event in events:
        if isinstance(event, TextDelta) and event.channel == "answer":
            yield event.text, None
        elif isinstance(event, Finished):
            yield "", "length" if event.reason in LIMITS else "stop"


def choice(text: str, reason: str | None) -> dict[str, object]:
    """The one choice of an answer or a chunk."""
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
