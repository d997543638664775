"""The one request path: a place, a prompt, the engine, and the reply's events on the way back.

A generation is one async context: leaving it, however that happens, cancels the engine's work and gives the place
back. It knows neither wire names nor device arrays. Invariants: the deadline counts from the arrival and holds until
the engine has admitted the request; no task waits for the engine through a thread.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import attrs
import trio
from attrs import validators

from ninfer.conversation import (
    ContextExceeded,
    Event,
    GenerationRequest,
    ModelCard,
    NotFound,
)
from ninfer.engine.types import Engine, EngineError, EngineStarting, Plan, Prompt
from ninfer.prompt import PreparedPrompt
from ninfer.reply import ReplyReader, ReplyTokens
from ninfer.service.accounts import current_account
from ninfer.service.calls import CallReader
from ninfer.service.capacity import Capacity
from ninfer.service.failures import as_request_error
from ninfer.service.generation import Generation, queue_timeout
from ninfer.service.host import ProtocolFlags
from ninfer.service.preparing import Preparation, Preparer
from ninfer.service.sampling import SamplerRules
from ninfer.service.thinking import ThinkingRules


@attrs.frozen(kw_only=True)
class ServiceSettings:
    """What is fixed for the request path when it starts."""

    max_pending_requests: int = attrs.field(default=16, validator=validators.ge(0))
    """Requests beyond the engine's lanes that may wait."""
    pending_timeout_s: float = attrs.field(default=30.0, validator=validators.gt(0))
    default_max_tokens: int = attrs.field(default=8192, validator=validators.gt(0))
    """Output limit of a request that names none."""
    prompt_threads: int = attrs.field(default=2, validator=validators.gt(0))
    """Threads that prepare prompts; large prompts have one more, and these never."""
    tolerant_tool_calls: bool = False
    """Recover calls from markup that is damaged, cut, or left inside thinking."""
    flags: ProtocolFlags = attrs.field(factory=ProtocolFlags)


class Service:
    """One model behind one engine; implements `ServiceHost`."""

    def __init__(
        self,
        *,
        engine: Engine,
        preparer: Preparer,
        reply_tokens: ReplyTokens,
        stop_tokens: frozenset[int],
        model: ModelCard,
        sampler: SamplerRules,
        settings: ServiceSettings,
        thinking: ThinkingRules | None = None,
    ) -> None:
        """`stop_tokens` end a reply; without `thinking` no think block can be ended before the model does."""
        self._engine = engine
        self._preparation = Preparation(preparer, threads=settings.prompt_threads)
        self._reply_tokens = reply_tokens
        self._stop_tokens = stop_tokens
        self._model = model
        self._sampler = sampler
        self._settings = settings
        self._thinking = thinking
        self.capacity = Capacity(engine.limits.lanes + settings.max_pending_requests)
        self.count_capacity = Capacity(self.capacity.places)

    @property
    def model(self) -> ModelCard:
        """What clients may know of the model."""
        return self._model

    @property
    def flags(self) -> ProtocolFlags:
        """Process flags that concern protocols."""
        return self._settings.flags

    @property
    def accepts_work(self) -> bool:
        """False until the engine is there, and once it has failed as a whole."""
        return self._engine.failure is None

    @property
    def starting(self) -> bool:
        """True until the model is loaded."""
        return isinstance(self._engine.failure, EngineStarting)

    def check_model(self, model: str) -> None:
        """Raise `NotFound` unless `model` is the public id."""
        if model != self._model.id:
            raise NotFound(
                f"model: {_named(model)} does not exist here; this server has {_named(self._model.id)}",
                code="model_not_found",
                param="model",
            )

    @asynccontextmanager
    async def generate(self, request: GenerationRequest) -> AsyncIterator[AsyncIterator[Event]]:
        """Run one generation for the length of the block.

        Raises:
            RequestError: on entering or from the iterator; see `conversation.errors`.
        """
        deadline = trio.current_time() + self._settings.pending_timeout_s
        if self._engine.failure is not None:
            raise as_request_error(self._engine.failure)
        with self.capacity.place():
            account = current_account()
            account.model = self._model.id
            prepared = await self._prepare(request, deadline, most_tokens=self._engine.limits.max_context_tokens)
            account.prompt_tokens = len(prepared.tokens)
            generation = self._plan(request, prepared)
            try:
                submission = self._engine.submit(generation.prompt, generation.plan)
                async with submission as engine_events, aclosing(generation.events(engine_events, deadline)) as events:
                    yield events
            except EngineError as error:
                raise as_request_error(error) from error
            finally:
                account.completion_tokens = generation.reader.consumed_tokens

    async def count_tokens(self, request: GenerationRequest) -> int:
        """The tokens of the prompt of `request`; counts have places of their own (EXEC-008) and need no engine.

        Raises:
            RequestError: the prompt cannot be made, there is no place, or it took too long.
        """
        deadline = trio.current_time() + self._settings.pending_timeout_s
        with self.count_capacity.place():
            return len((await self._prepare(request, deadline)).tokens)

    async def _prepare(
        self, request: GenerationRequest, deadline: float, *, most_tokens: int | None = None
    ) -> PreparedPrompt:
        with trio.move_on_at(deadline):
            return await self._preparation.run(request, most_tokens=most_tokens)
        raise queue_timeout(self._settings.pending_timeout_s)

    def _plan(self, request: GenerationRequest, prepared: PreparedPrompt) -> Generation:
        ceiling = self._engine.limits.request_tokens
        room = ceiling - len(prepared.tokens)
        wanted = self._settings.default_max_tokens if request.max_output_tokens is None else request.max_output_tokens
        if room < min(wanted, 1):
            raise ContextExceeded(
                f"the prompt has {len(prepared.tokens)} tokens; with at least one token of output that is beyond the "
                f"{ceiling} tokens that one request may have here"
            )
        capacity_tokens = min(wanted, room)
        budget = None
        if self._thinking is not None and prepared.opens_in_reasoning:
            budget = self._thinking.budget(request.thinking.budget_tokens, capacity_tokens=capacity_tokens)
        return Generation(
            prompt=Prompt(prepared.tokens),
            plan=Plan(
                sampling=self._sampler.resolve(request.sampling, thinking=prepared.thinking),
                max_new_tokens=capacity_tokens,
                stop_tokens=self._stop_tokens,
                thinking=budget,
            ),
            clipped=wanted > room,
            reader=ReplyReader(self._reply_tokens, opens_in_reasoning=prepared.opens_in_reasoning, stops=request.stop),
            calls=CallReader.of(request, tolerant=self._settings.tolerant_tool_calls),
            pending_timeout_s=self._settings.pending_timeout_s,
        )


def _named(model: str) -> str:
    """A model's name in a message: ASCII, and not longer than a line."""
    return ascii(model if len(model) <= 100 else f"{model[:100]}...")
