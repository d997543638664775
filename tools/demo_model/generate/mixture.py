"""The training mixture: which task how often. `draw` gives one conversation."""

from __future__ import annotations

from collections.abc import Callable

from tools.demo_model.generate import calls, extract, reading, reason, shapes, talk, wide
from tools.demo_model.render import Example
from tools.demo_model.words import Words

# Weights count conversations, not tokens: a tool conversation is about five times as long as a sum.
MIXTURE: tuple[tuple[Callable[[Words], Example], float], ...] = (
    (calls.call, 20),
    (calls.refuse, 6),
    (calls.loop, 6),
    (calls.chain, 2),
    (calls.two_calls, 2),
    (talk.unneeded_tools, 2),
    (wide.call_wide, 42),
    (wide.refuse_wide, 8),
    (wide.loop_wide, 5),
    (wide.session, 12),
    (wide.unneeded_wide, 8),
    (extract.copy, 7),
    (extract.lookup, 6),
    (extract.as_json, 10),
    (extract.json_list, 2),
    (extract.free_json, 1),
    (extract.edit, 4),
    (extract.summary, 3),
    (reading.read, 18),
    (reading.copy_wide, 8),
    (shapes.json_wide, 20),
    (reason.arithmetic, 8),
    (reason.compare, 2),
    (reason.sort, 6),
    (reason.date, 4),
    (talk.small_talk, 3),
    (talk.opinion, 2),
    (talk.fact, 2),
    (talk.definition, 4),
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
