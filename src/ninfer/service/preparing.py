"""Where a prompt is prepared: in place, in one of the threads for prompts, or in the one for large prompts.

Preparation is synchronous and heavy. A small prompt of a template of ours is made where it is, since the hop to a
thread would cost more. Large prompts share one thread, so that however many come, the others' threads are free. It
knows no template and no deadline.

Invariant: when the caller is cancelled the work is told to stop, and its thread counts as taken until it has.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Protocol as Interface

import trio

from ninfer.conversation import GenerationRequest, Reasoning, Text, ToolCall
from ninfer.prompt import Cancellation, PreparedPrompt

LIGHT_CHARS = 8_000
LIGHT_TURNS = 16
"""Up to these a prompt is prepared in place."""

LARGE_CHARS = 256_000
"""From here on a prompt is large: it takes a tenth of a second or more."""

ITEM_CHARS = 64
"""What a turn, a part of it or a JSON value costs beside its text, as so many characters of text."""


class Preparer(Interface):
    """What the service needs of `prompt.PromptBuilder`."""

    @property
    def in_place(self) -> bool:
        """Whether a small prompt takes a millisecond or two, whatever is in it."""
        ...

    def build(
        self, request: GenerationRequest, *, most_tokens: int | None = None, cancellation: Cancellation | None = None
    ) -> PreparedPrompt:
        """The prompt of `request`, which may have `most_tokens`. Synchronous, pure, heavy on the CPU.

        Raises:
            RequestError: it cannot be made, or certainly has more tokens.
            Abandoned: `cancellation` has told so.
        """
        ...


class Preparation:
    """Prepares the prompts of one service."""

    def __init__(self, preparer: Preparer, *, threads: int) -> None:
        self._preparer = preparer
        self._threads = trio.CapacityLimiter(threads)
        self._large = trio.CapacityLimiter(1)

    async def run(self, request: GenerationRequest, *, most_tokens: int | None) -> PreparedPrompt:
        """The prompt of `request`; see `Preparer.build`."""
        if self._preparer.in_place and is_light(request):
            await trio.lowlevel.checkpoint()
            return self._preparer.build(request, most_tokens=most_tokens)
        cancellation = Cancellation()
        build = partial(self._preparer.build, request, most_tokens=most_tokens, cancellation=cancellation)
        limiter = self._large if is_large(request) else self._threads
        try:
            # Abandoned, the thread goes on until it hears of the cancellation; its place is free only then.
            return await trio.to_thread.run_sync(build, limiter=limiter, abandon_on_cancel=True)
        finally:
            cancellation.cancel()


def is_light(request: GenerationRequest) -> bool:
    """Whether the prompt takes a millisecond or two: there is nothing in it but the text of few turns."""
    if request.tools or request.template_kwargs or len(request.turns) > LIGHT_TURNS:
        return False
    if any(len(turn.parts) > LIGHT_TURNS or turn.calls or turn.call_id for turn in request.turns):
        return False
    return sum(len(turn.text) + len(turn.reasoning or "") for turn in request.turns) < LIGHT_CHARS


def is_large(request: GenerationRequest) -> bool:
    """Whether the prompt takes long. Looks no further than that tells."""
    chars = 0
    for size in _sizes(request):
        chars += size
        if chars >= LARGE_CHARS:
            return True
    return False


def _sizes(request: GenerationRequest) -> Iterator[int]:
    """Characters of all that is in a request, piece by piece."""
    for turn in request.turns:
        yield ITEM_CHARS
        for part in turn.parts:
            yield ITEM_CHARS
            if isinstance(part, ToolCall):
                yield from _json_sizes([part.arguments])
            else:
                yield len(part.text) if isinstance(part, Text | Reasoning) else 0
    yield from _json_sizes([request.template_kwargs])
    yield from _json_sizes(tool.declaration for tool in request.tools)


def _json_sizes(values: Iterable[object]) -> Iterator[int]:
    """Characters of JSON values and all that is in them, without recursion: they may be nested deeply."""
    waiting = [iter(values)]
    while waiting:
        for value in waiting[-1]:
            yield ITEM_CHARS
            if isinstance(value, str):
                yield len(value)
            elif isinstance(value, Mapping):
                waiting += [iter(value), iter(value.values())]
                break
            elif isinstance(value, list | tuple):
                waiting.append(iter(value))
                break
        else:
            waiting.pop()
