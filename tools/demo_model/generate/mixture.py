"""The training mixture: which task how often. `draw` gives one conversation."""

from __future__ import annotations

from collections.abc import Callable

from tools.demo_model.generate import calls, extract, reason, talk
from tools.demo_model.render import Example
from tools.demo_model.words import Words

# Weights count conversations, not tokens: a tool conversation is about five times as long as a sum.
MIXTURE: tuple[tuple[Callable[[Words], Example], float], ...] = (
    (calls.call, 30),
    (calls.refuse, 10),
    (calls.loop, 9),
    (calls.chain, 3),
    (calls.two_calls, 2),
    (talk.unneeded_tools, 4),
    (extract.copy, 9),
    (extract.lookup, 8),
    (extract.as_json, 9),
    (extract.json_list, 2),
    (extract.free_json, 1),
    (extract.edit, 4),
    (extract.summary, 3),
    (reason.arithmetic, 9),
    (reason.compare, 2),
    (reason.sort, 4),
    (reason.date, 4),
    (talk.small_talk, 2),
    (talk.fact, 3),
    (talk.definition, 3),
    (talk.tell_story, 4),
    (talk.use_word, 1),
    (talk.remember, 2),
    (talk.several, 4),
)
_TASKS = [task for task, _ in MIXTURE]
_WEIGHTS = [weight for _, weight in MIXTURE]


def draw(words: Words) -> Example:
    """One conversation of the mixture."""
    return words.rng.choices(_TASKS, _WEIGHTS)[0](words)
