"""Thinking budgets: which requests have one, and the text that ends a thought that has used its budget up.

The text goes to the model as tokens of its own reply; only its close marker is a control token, whatever else it
spells. The wording is ours: the family's canonical sentence stands in no artifact (D41). It knows no wire names.
"""

import re
from typing import Self

import attrs
from attrs import validators

from ninfer.conversation import InvalidRequest
from ninfer.engine.types import ThinkingBudget
from ninfer.prompt import THINK_CLOSE, Tokenizer

DEFAULT_GUIDANCE = "\n\nI have to stop thinking here and answer with what I have found out so far."

_CLOSED = re.compile(rf"{re.escape(THINK_CLOSE)}(?=[\r\n]|\Z)")
"""A marker that a reader takes for the end of the block, and not for a quotation (THINK-019)."""


def closing_text(message: str | None) -> str:
    """What is said when a budget ends: `message` or our guidance, the close marker behind it if it lacks one."""
    text = DEFAULT_GUIDANCE if message is None else message
    if _CLOSED.search(text) is None:
        text += f"\n{THINK_CLOSE}"
    return text if not text.endswith(THINK_CLOSE) else f"{text}\n\n"


@attrs.frozen(kw_only=True)
class ThinkingRules:
    """Everything that decides a budget beside the request."""

    default_tokens: int | None = attrs.field(default=None, validator=validators.optional(validators.ge(1)))
    """Budget of a request that names none."""
    close_token: int
    forced_tokens: tuple[int, ...]
    confirming_tokens: frozenset[int]
    """Ids whose text begins with a line break."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, default_tokens: int | None = None, message: str | None = None) -> Self | None:
        """The rules over this vocabulary; None for one without a close marker, whose thinking nothing can end."""
        close_token = tokenizer.control_tokens.get(THINK_CLOSE)
        if close_token is None:
            return None

        def begins_a_line(token: int) -> bool:
            return tokenizer.token_bytes(token).startswith((b"\r", b"\n"))

        *closed, rest = closing_text(message).split(THINK_CLOSE)
        return cls(
            default_tokens=default_tokens,
            close_token=close_token,
            forced_tokens=tokenizer.encode_pieces([*((text, close_token) for text in closed), (rest, None)]),
            confirming_tokens=frozenset(filter(begins_a_line, range(tokenizer.vocabulary_tokens))),
        )

    def budget(self, asked_tokens: int | None, *, capacity_tokens: int) -> ThinkingBudget | None:
        """The budget of a request that begins inside a think block and may generate `capacity_tokens`.

        Raises:
            InvalidRequest: code thinking_budget_capacity_insufficient; the text would not fit behind it (THINK-011).
        """
        limit_tokens = self.default_tokens if asked_tokens is None else asked_tokens
        if limit_tokens is None:
            return None
        budget = ThinkingBudget(
            limit_tokens=limit_tokens,
            close_token=self.close_token,
            confirming_tokens=self.confirming_tokens,
            forced_tokens=self.forced_tokens,
        )
        if not budget.fits(capacity_tokens):
            raise InvalidRequest(
                f"{capacity_tokens} tokens of output have no room for {limit_tokens} tokens of thinking, the "
                f"{len(self.forced_tokens)} that end it, and one of the answer: allow more output or less thinking",
                code="thinking_budget_capacity_insufficient",
            )
        return budget
