"""Turns of a conversation and the parts they are made of.

Adjacent text parts of one turn are one text: they are joined without a separator (CHAT-004). An empty turn stays
an empty turn (CHAT-005).
"""

from typing import Literal, TypeAlias

import attrs

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]


@attrs.frozen
class Text:
    """Visible text, exactly as the caller wrote it."""

    text: str


@attrs.frozen
class Reasoning:
    """Reasoning that an assistant turn of the history carries beside its visible text."""

    text: str


Part: TypeAlias = Text | Reasoning


@attrs.frozen(kw_only=True)
class Turn:
    """One message: who speaks, and the parts in the order in which they were given."""

    role: Role
    parts: tuple[Part, ...] = ()

    @property
    def text(self) -> str:
        """All visible text of the turn, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str | None:
        """All reasoning of the turn, joined; None where the turn carries none at all."""
        found = [part.text for part in self.parts if isinstance(part, Reasoning)]
        return "".join(found) if found else None
