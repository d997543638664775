"""A thinking budget at work: counts what the model thinks and tells when the forced tokens are due.

A close marker that the model has just made is honoured before the limit is: the token after it decides, since a marker
that no line break follows is a quotation. Knows ids only; what the forced tokens say is the plan's.

Invariant: it is due at most once, and never after the model has closed the block by itself.
"""

import attrs

from ninfer.engine.types import ThinkingBudget


@attrs.define
class ThinkingWatch:
    """The budget of one request."""

    budget: ThinkingBudget
    counted_tokens: int = 0
    over: bool = False
    """The block is closed, by the model or by force."""
    _closing: bool = False  # the latest token is a close marker

    def take(self, token: int) -> bool:
        """Count a token that the model has chosen; whether the forced tokens come now."""
        if self.over:
            return False
        if self._closing and token in self.budget.confirming_tokens:
            self.over = True
            return False
        self.counted_tokens += 1
        self._closing = token == self.budget.close_token
        self.over = not self._closing and self.counted_tokens >= self.budget.limit_tokens
        return self.over
