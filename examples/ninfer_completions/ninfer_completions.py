"""OpenAI's legacy completions over the plugin interface: one prompt string in, one text out.

It knows the wire form of /v1/completions and nothing of tokens or of the engine.
"""

import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated
from uuid import uuid4

import attrs

from ninfer.conversation import Event, Finished, FinishReason, GenerationRequest, RequestError, Text, TextDelta, Turn
from ninfer.protocols.openai_errors import openai_error, openai_stream_error
from ninfer.protocols.plugin import Call, JSONValue, ProtocolHost, Route, WireError
from ninfer.protocols.refusal import Refusals, empty, never, one_of, refuse_fields
from ninfer.protocols.sampler_members import SamplerMembers
from ninfer.protocols.sse import DONE, data_frame
from ninfer.protocols.structure import Array, Integer, String, structure

LIMITS = (FinishReason.OUTPUT_LIMIT, FinishReason.CONTEXT_LIMIT)
REFUSED: Refusals = {
    # member -> what asks for nothing, and the guarantee that is not given
    **dict.fromkeys(("n", "best_of"), (one_of(1), "one completion is made for a request")),
    "echo": (one_of(False), "the prompt is not part of the answer"),
    "suffix": (one_of(""), "text is continued, not inserted"),
    "logprobs": (never, "log probabilities are not computed"),
    "logit_bias": (empty, "logits are not biased"),
}


@attrs.frozen(kw_only=True)
class Body(SamplerMembers):
    """The members of a request that are understood."""

    model: str
    prompt: str
    max_tokens: Annotated[int, Integer(low=0)] = 16
    stop: Annotated[str | tuple[Annotated[str, String(non_empty=True)], ...], Array(most=4, or_string=True)] = ()
    stream: bool = False


def decode(body: JSONValue) -> Body:
    """What `body` asks for; raises what it refuses."""
    if isinstance(body, dict):
        refuse_fields(body, REFUSED)
    return structure(body, Body)


@attrs.frozen
class LegacyCompletions:
    host: ProtocolHost

    name = "legacy_completions"
    request_id_header = "x-request-id"

    def routes(self) -> Sequence[Route]:
        return (Route("POST", "/v1/completions", self.create, summary="Complete one prompt.", body=Body),)

    def error(self, error: RequestError, request_id: str) -> WireError:
        return openai_error(error)

    def stream_error(self, error: RequestError, request_id: str) -> bytes:
        return openai_stream_error(error)

    async def create(self, call: Call) -> None:
        body = await call.decoded(decode, texts=("prompt",))
        self.host.check_model(body.model)
        request = GenerationRequest(
            turns=(Turn(role="user", parts=(Text(body.prompt),)),),
            sampling=body.sampling(),
            max_output_tokens=body.max_tokens,
            stop=tuple(filter(None, (body.stop,) if isinstance(body.stop, str) else body.stop)),
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
