"""The training mixture: which task how often. `draw` gives one conversation."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from tools.demo_model.generate import (
    calls,
    chat,
    errands,
    extract,
    followups,
    jsons,
    knowledge,
    memory,
    persona,
    reading,
    reason,
    shapes,
    talk,
    wide,
)
from tools.demo_model.heldout import shows_held
from tools.demo_model.render import Example
from tools.demo_model.words import Words

# Weights count conversations, not tokens: a tool conversation is about five times as long as a sum.
MIXTURE: tuple[tuple[Callable[[Words], Example], float], ...] = (
    (calls.call, 18),
    (calls.refuse, 4),
    (calls.loop, 5),
    (calls.chain, 2),
    (calls.two_calls, 2),
    (talk.unneeded_tools, 2),
    (wide.call_wide, 38),
    (wide.refuse_wide, 5),
    (wide.loop_wide, 4),
    (wide.session, 7),
    (wide.unneeded_wide, 6),
    (errands.call_errand, 58),
    (errands.several_errands, 13),
    (errands.refuse_errand, 6),
    (errands.loop_errand, 5),
    (errands.session_errand, 5),
    (errands.unneeded_errand, 16),
    (extract.copy, 7),
    (extract.lookup, 5),
    (extract.as_json, 10),
    (extract.json_list, 2),
    (extract.free_json, 1),
    (extract.edit, 4),
    (extract.summary, 3),
    (reading.read, 14),
    (reading.copy_wide, 8),
    (shapes.json_wide, 16),
    (jsons.jsons, 10),
    (reason.arithmetic, 9),
    (reason.compare, 2),
    (reason.sort, 6),
    (reason.date, 4),
    (errands.no_tools, 8),
    (errands.ask_back, 3),
    (chat.chat, 44),
    (chat.odd_question, 7),
    (followups.follow_up, 7),
    (chat.statement, 8),
    (knowledge.knowledge, 32),
    (memory.recall, 26),
    (memory.said_before, 3),
    (persona.persona, 26),
    (talk.opinion, 2),
    (talk.fact, 4),
    (talk.definition, 4),
    (talk.tell_story, 5),
    (talk.use_word, 1),
    (talk.remember, 1),
    (talk.several, 5),
)
_TASKS = [task for task, _ in MIXTURE]
_WEIGHTS = [weight for _, weight in MIXTURE]


def draw(words: Words) -> Example:
    """One conversation of the mixture that says nothing of what is held for judging."""
    while True:
        example = words.rng.choices(_TASKS, _WEIGHTS)[0](words)
        if not shows_held(example.messages):
            return _as_clients_send(words, example)


def _as_clients_send(words: Words, example: Example) -> Example:
    """Sometimes without earlier thoughts: most clients send replies back without them, and thinking stays on."""
    if not example.thinking or words.rng.random() > 0.4:
        return example
    *earlier, last = example.messages
    kept = [{**message, "reasoning_content": ""} if message["role"] == "assistant" else message for message in earlier]
    return attrs.evolve(example, messages=[*kept, last])
