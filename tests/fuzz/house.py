"""The whole house without a model, for fuzzing: real service, prompt and reply over the scripted engine.

What is mounted on it is the test's choice. Leaving the block asserts that the engine is whole and owns nothing.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from ninfer.conversation import GenerationRequest, ModelCard
from ninfer.engine.scripted import open_scripted_engine
from ninfer.engine.types import EngineLimits
from ninfer.prompt import THINK_CLOSE, THINK_OPEN, Cancellation, PreparedPrompt, PromptBuilder, Tokenizer
from ninfer.reply import ReplyTokens
from ninfer.service import SamplerRules, Service, ServiceSettings
from tests.prompt.tiny import template, tokenizer

MODEL = "fuzz"
LIMITS = EngineLimits(max_context_tokens=4096, lanes=2, kv_capacity_tokens=8192, prefill_chunk_tokens=512)


@attrs.define(eq=False)
class CountingBuilder:
    """A prompt builder that counts what gets as far as it: requests that decoding let through."""

    builder: PromptBuilder
    built: int = 0
    in_place: bool = True

    def build(
        self, request: GenerationRequest, *, most_tokens: int | None = None, cancellation: Cancellation | None = None
    ) -> PreparedPrompt:
        """The prompt of `request`."""
        self.built += 1
        return self.builder.build(request, most_tokens=most_tokens, cancellation=cancellation)


@attrs.frozen
class House:
    """A service to mount, and the count of what was decoded."""

    service: Service
    prompts: CountingBuilder


@asynccontextmanager
async def open_house(*, tolerant_tool_calls: bool = False) -> AsyncIterator[House]:
    """Everything below the server, without waiting times."""
    words = tokenizer()
    prompts = CountingBuilder(PromptBuilder(words, template()))
    async with open_scripted_engine(words, LIMITS, unit_s=0.0) as engine:
        yield House(
            Service(
                engine=engine,
                preparer=prompts,
                reply_tokens=reply_tokens(words),
                stop_tokens=words.stop_tokens,
                model=CARD,
                sampler=SamplerRules(architecture="none"),
                settings=ServiceSettings(
                    pending_timeout_s=60.0, default_max_tokens=64, tolerant_tool_calls=tolerant_tool_calls
                ),
            ),
            prompts,
        )
        # A request that hangs in the engine would show here, too late but certainly.
        with trio.fail_after(10):
            while engine.figures().resident_requests or engine.figures().waiting_requests:
                await trio.lowlevel.checkpoint()
        assert engine.figures().free_pages == engine.figures().total_pages
        assert engine.figures().free_slots == engine.figures().total_slots
        assert engine.failure is None


def reply_tokens(words: Tokenizer) -> ReplyTokens:
    """What the reply reader must know of `words`."""
    return ReplyTokens(
        token_bytes=words.token_bytes,
        hidden=words.hidden_tokens,
        reasoning_open=words.control_tokens.get(THINK_OPEN),
        reasoning_close=words.control_tokens.get(THINK_CLOSE),
    )


CARD = ModelCard(
    id=MODEL,
    max_context_tokens=LIMITS.max_context_tokens,
    native_context_tokens=4096,
    vocabulary_tokens=276,
    embedding_width=8,
    parameters=1,
    weight_bytes=2,
    dominant_format="bf16",
    created_unix_s=1_700_000_000,
)
