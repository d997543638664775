"""Which cache points of an OpenAI-like request count: the latest explicit ones, and one that nobody had to ask for.

It knows turns and no wire name. Invariant: only cache points come or go, never text (CACHE-HINT-010).
"""

from collections.abc import Sequence

import attrs

from ninfer.conversation import CachePoint, Part, Text, Turn

MOST = 4
"""Places that one request may ask to keep (CACHE-HINT-007)."""


def place_cache_points(turns: Sequence[Turn], *, implicit: bool) -> tuple[Turn, ...]:
    """`turns` with the cache points that count.

    Of more than four explicit ones the latest four stay (D9). `implicit` puts one behind the latest text, unless one is
    there or four explicit ones leave no place.
    """
    explicit = sum(_points(turn) for turn in turns)
    placed = list(turns)
    surplus = explicit - MOST
    for at, turn in enumerate(turns):
        if surplus > 0 and (here := _points(turn)):
            placed[at] = attrs.evolve(turn, parts=_without(turn.parts, min(here, surplus)))
            surplus -= here
    if implicit and explicit < MOST:
        _add_at_the_end(placed)
    return tuple(placed)


def _points(turn: Turn) -> int:
    return sum(isinstance(part, CachePoint) for part in turn.parts)


def _without(parts: Sequence[Part], count: int) -> tuple[Part, ...]:
    """`parts` without the first `count` cache points."""
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, CachePoint) and count > 0:
            count -= 1
        else:
            kept.append(part)
    return tuple(kept)


def _add_at_the_end(turns: list[Turn]) -> None:
    for at in reversed(range(len(turns))):
        parts = turns[at].parts
        texts = [place for place, part in enumerate(parts) if isinstance(part, Text)]
        if texts:
            after = texts[-1] + 1
            if not any(isinstance(part, CachePoint) for part in parts[after : after + 1]):
                turns[at] = attrs.evolve(turns[at], parts=(*parts[:after], CachePoint(), *parts[after:]))
            return
