"""What training must not show: runs of words that the third set says.

The third set judges the model, so no conversation is trained on that shares five words in a row with what its users
and system messages say. It reads the cases so that whoever writes the generators need not.
"""

from __future__ import annotations

import functools
import re
from typing import Any

RUN = 5
WORD = re.compile(r"[a-z0-9']+")


def runs(text: str) -> set[tuple[str, ...]]:
    """All runs of RUN words of a text."""
    words = WORD.findall(text.lower())
    return {tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1)}


@functools.cache
def held_runs() -> frozenset[tuple[str, ...]]:
    """The runs of the third set's users and system messages."""
    from tools.demo_model import third_set

    cases: tuple[Any, ...] = (*third_set.SENTENCES, *third_set.REQUESTS)
    found: set[tuple[str, ...]] = set()
    for case in cases:
        for message in case.messages:
            if message["role"] in ("user", "system"):
                found |= runs(str(message["content"]))
    return frozenset(found)


def shows_held(messages: list[dict[str, Any]]) -> bool:
    """Whether a conversation's user or system says a run of the third set."""
    held = held_runs()
    return any(
        not held.isdisjoint(runs(message["content"])) for message in messages if message["role"] in ("user", "system")
    )
