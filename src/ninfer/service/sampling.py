"""Which sampler a request gets: preset, then process flags, then the request's own fields, then --greedy (SAMP-005).

The presets stand in one table, by architecture and thinking mode. It knows no wire names and no tokens.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import TypeVar

import attrs
from attrs import validators

from ninfer.conversation import SamplingFields
from ninfer.engine.types import MAX_CANDIDATES, Sampling


@attrs.frozen(kw_only=True)
class Preset:
    """Sampler values of one model in one mode; min-p and the frequency penalty are 0 in all of them."""

    temperature: float
    top_p: float
    presence_penalty: float
    top_k: int = MAX_CANDIDATES


_DENSE = (
    Preset(temperature=1.0, top_p=0.95, presence_penalty=0.0),
    Preset(temperature=0.7, top_p=0.80, presence_penalty=1.5),
)
_MOE = (
    Preset(temperature=1.0, top_p=0.95, presence_penalty=1.5),
    Preset(temperature=0.7, top_p=0.80, presence_penalty=1.5),
)

Number = TypeVar("Number", int, float)

PRESETS: Mapping[str, tuple[Preset, Preset]] = {
    # architecture -> (thinking, not thinking)
    "qwen3_5": _DENSE,
    "qwen3_5_text": _DENSE,
    "qwen3_5_moe": _MOE,
    "qwen3_5_moe_text": _MOE,
}
FALLBACK = _DENSE
"""What an architecture without a registered preset gets (SAMP-009)."""


def fresh_seed() -> int:
    """A seed that nobody can foresee, non-negative and of 63 bits."""
    return secrets.randbits(63)


@attrs.frozen(kw_only=True)
class SamplerRules:
    """Everything that decides a sampler beside the request."""

    architecture: str
    flags: SamplingFields = attrs.field(factory=SamplingFields)
    """The process flags. Their seed counts only where a request has none (SAMP-007)."""
    greedy: bool = False
    new_seed: Callable[[], int] = attrs.field(default=fresh_seed, validator=validators.is_callable())

    def resolve(self, asked: SamplingFields, *, thinking: bool) -> Sampling:
        """The sampler of one request."""
        for_thinking, for_answers = PRESETS.get(self.architecture, FALLBACK)
        preset = for_thinking if thinking else for_answers
        flags = self.flags
        seed = _first(asked.seed, flags.seed)
        return Sampling(
            temperature=0.0 if self.greedy else _chosen(asked.temperature, flags.temperature, preset.temperature),
            top_k=_chosen(asked.top_k, flags.top_k, preset.top_k),
            top_p=_chosen(asked.top_p, flags.top_p, preset.top_p),
            min_p=_chosen(asked.min_p, flags.min_p, 0.0),
            presence_penalty=_chosen(asked.presence_penalty, flags.presence_penalty, preset.presence_penalty),
            frequency_penalty=_chosen(asked.frequency_penalty, flags.frequency_penalty, 0.0),
            seed=self.new_seed() if seed is None else seed,
        )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _chosen(asked: Number | None, flag: Number | None, preset: Number) -> Number:
    return asked if asked is not None else flag if flag is not None else preset
