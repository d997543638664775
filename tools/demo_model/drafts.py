"""How many drafts of a multi-token prediction head a serving loop would accept. It knows hits, no model."""

from __future__ import annotations

from typing import Any

DEPTHS = 3
"""Drafts of a round."""


def accepted(hits: Any, first: int, last: int) -> tuple[int, int]:
    """(accepted, drafted) over the tokens first .. last - 1 of one sequence, three drafts a round.

    hits[d][p]: whether the draft of depth d at position p, fed with the true tokens before, says token p + 2. As in
    serving, a round goes on from the last accepted draft and one token more; drafts beyond the end are not counted.
    """
    good = drafted = 0
    at = first - 1  # position of the newest token whose successor is known: the first draft speaks of at + 2
    while at + 2 < last:
        count = 0
        for depth in range(DEPTHS):
            if at + depth + 2 >= last:
                break
            drafted += 1
            if count == depth and hits[depth][at + depth]:
                count += 1
        good += count
        at += count + 1
    return good, drafted
