"""Helpers around the engine for tests: a worker without a thread, and what an undisturbed request would say."""

from collections.abc import Callable
from itertools import pairwise

import attrs

from ninfer.engine.device import Device, SampleRow
from ninfer.engine.scheduler import Note
from ninfer.engine.types import (
    EngineEvent,
    EngineLimits,
    Failed,
    Finished,
    Plan,
    Prompt,
    Sampling,
    ThinkingBudget,
    Tokens,
)
from ninfer.engine.worker import Direct, Worker, run_as_asked
from tests.fakes.device import Choose, advance, choose_by_hash, state_after

GREEDY = Sampling(temperature=0)


def limits(*, lanes: int = 1, pages: int = 64, context_tokens: int = 4096, chunk_tokens: int = 128) -> EngineLimits:
    """Small limits for tests."""
    return EngineLimits(
        max_context_tokens=context_tokens,
        lanes=lanes,
        kv_capacity_tokens=pages * 64,
        prefill_chunk_tokens=chunk_tokens,
    )


def plan(max_new_tokens: int, *stops: int, seed: int = 0, thinking: ThinkingBudget | None = None) -> Plan:
    """A greedy plan."""
    return Plan(
        sampling=attrs.evolve(GREEDY, seed=seed),
        max_new_tokens=max_new_tokens,
        stop_tokens=frozenset(stops),
        thinking=thinking,
    )


def prompt(length: int, salt: int = 0) -> Prompt:
    """A prompt of `length` tokens that no other salt shares."""
    return Prompt(tuple((salt * 7919 + index * 31) % 1000 for index in range(length)))


def undisturbed(
    asked: Prompt, how: Plan, *, max_context_tokens: int = 4096, choose: Choose = choose_by_hash
) -> tuple[int, ...]:
    """The tokens that a `FakeDevice` generates for this request when nothing comes between."""
    state = state_after(asked.tokens)
    room = min(how.max_new_tokens, max_context_tokens - len(asked.tokens))
    tokens: list[int] = []
    budget = how.thinking
    while len(tokens) < room and not (tokens and tokens[-1] in how.stop_tokens):
        token = choose(state, SampleRow(sampling=how.sampling, position=len(asked.tokens) + len(tokens)))
        new = [token]
        if budget is not None and token not in how.stop_tokens and thinks_enough([*tokens, token], budget):
            new += budget.forced_tokens if len(tokens) + 1 + len(budget.forced_tokens) <= room else ()
            budget = None
        for token in new:
            tokens.append(token)
            state = advance(state, token)
    return tuple(tokens)


def thinks_enough(thought: list[int], budget: ThinkingBudget) -> bool:
    """Whether `thought`, all of it the model's own, has just reached the limit with the block still open."""
    closed = any(mark == budget.close_token and after in budget.confirming_tokens for mark, after in pairwise(thought))
    if closed or thought[-1] == budget.close_token or len(thought) < budget.limit_tokens:
        return False
    # Beyond the limit only while a close marker waited for the token that decides about it.
    return all(token == budget.close_token for token in thought[budget.limit_tokens - 1 : -1])


@attrs.define(eq=False)
class ManualClock:
    """A clock that stands still until a test moves it."""

    now_s: float = 0.0

    def __call__(self) -> float:
        """The time it was set to."""
        return self.now_s


class ManualEngine:
    """A worker that a test steps by hand: no thread, no Trio, no time."""

    def __init__(self, device: Device, within: EngineLimits, *, direct: Direct = run_as_asked) -> None:
        self.clock = ManualClock()
        self.device = device
        self.events: dict[int, list[EngineEvent]] = {}
        self.worker = Worker(device=device, limits=within, publish=self._take, clock=self.clock, direct=direct)
        self.worker.prepare()
        self._tickets = 0

    def _take(self, notes: "list[Note] | tuple[Note, ...]") -> None:
        for ticket, event in notes:
            self.events[ticket].append(event)

    def submit(self, asked: Prompt, how: Plan) -> int:
        """Hand a request over; its ticket."""
        ticket, self._tickets = self._tickets, self._tickets + 1
        self.events[ticket] = []
        self.worker.submit(ticket, asked, how)
        return ticket

    def step(self, times: int = 1) -> None:
        """Run the loop body."""
        for _ in range(times):
            assert self.worker.step()

    def run_until(self, done: Callable[[], bool], *, most_steps: int = 10_000) -> int:
        """Step until `done`; the steps that it took."""
        for step in range(most_steps):
            if done():
                return step
            self.step()
        raise AssertionError(f"not done after {most_steps} steps")

    def ended(self, ticket: int) -> bool:
        """Whether the request has got its last event."""
        return bool(self.events[ticket]) and isinstance(self.events[ticket][-1], Finished | Failed)

    def finish(self) -> None:
        """Step until every request that was not cancelled has ended."""
        self.run_until(lambda: not self.busy)

    @property
    def busy(self) -> bool:
        """Whether the engine still owns any request."""
        figures = self.worker.figures
        return bool(figures.waiting_requests + figures.resident_requests + figures.paused_requests)

    def tokens(self, ticket: int) -> tuple[int, ...]:
        """All tokens that were published."""
        return tuple(token for event in self.events[ticket] if isinstance(event, Tokens) for token in event.tokens)

    def last(self, ticket: int) -> EngineEvent:
        """The latest event."""
        return self.events[ticket][-1]
