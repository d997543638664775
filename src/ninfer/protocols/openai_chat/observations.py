"""llama.cpp's observations on Chat answers: `timings` and `prompt_progress` (OBS-001 to OBS-017).

It knows figures and the names that llama.cpp's clients read. Invariant: every figure is finite; what cannot be divided
is 0.
"""

import math

from ninfer.conversation import PromptProgress, Started, Timings


def timings_object(
    *, prompt_tokens: int, cached_tokens: int, completion_tokens: int, timings: Timings
) -> dict[str, object]:
    """What was done and how fast. The first output token belongs to the prompt's time (OBS-007)."""
    computed = prompt_tokens - cached_tokens
    prompt_ms, predicted_ms = timings.prompt_s * 1000, timings.generation_s * 1000
    intervals = max(completion_tokens - 1, 0)
    return {
        "cache_n": cached_tokens,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": _ratio(prompt_ms, computed),
        "prompt_per_second": _ratio(computed * 1000, prompt_ms),
        "predicted_n": completion_tokens,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": _ratio(predicted_ms, intervals),
        "predicted_per_second": _ratio(intervals * 1000, predicted_ms),
    }


class ProgressReport:
    """The `prompt_progress` of one stream: from what was reused, forward, to the whole prompt."""

    def __init__(self) -> None:
        self._processed_tokens = -1

    def begin(self, started: Started) -> dict[str, object] | None:
        """The admission has decided what is reused."""
        return self._object(started.prompt_tokens, started.cached_tokens, started.cached_tokens, 0.0)

    def advance(self, progress: PromptProgress) -> dict[str, object] | None:
        """A unit has been committed; None where that is nothing new (OBS-016)."""
        return self._object(
            progress.total_tokens, progress.cached_tokens, progress.processed_tokens, progress.elapsed_s
        )

    def _object(
        self, total_tokens: int, cached_tokens: int, processed_tokens: int, elapsed_s: float
    ) -> dict[str, object] | None:
        if processed_tokens <= self._processed_tokens:
            return None
        self._processed_tokens = processed_tokens
        return {
            "total": total_tokens,
            "cache": cached_tokens,
            "processed": processed_tokens,
            "time_ms": int(elapsed_s * 1000),
        }


def _ratio(amount: float, by: float) -> float:
    ratio = amount / by if by > 0 else 0.0
    return ratio if math.isfinite(ratio) else 0.0
