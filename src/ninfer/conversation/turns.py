"""Turns of a conversation and the parts they are made of.

Adjacent text parts of one turn are one text: they are joined without a separator (CHAT-004). An empty turn stays
an empty turn (CHAT-005). An assistant turn holds its parts in the order reasoning, text, calls (RITEM-008).
"""

from typing import Literal, TypeAlias

import attrs

from ninfer.conversation.tools import ToolCall

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]


@attrs.frozen
class Text:
    """Visible text, exactly as the caller wrote it."""

    text: str


@attrs.frozen
class Reasoning:
    """Reasoning that an assistant turn of the history carries beside its visible text."""

    text: str


@attrs.frozen
class CachePoint:
    """The caller marks a prefix worth keeping that ends here. It changes reuse, never the prompt (CACHE-HINT-010)."""


Part: TypeAlias = Text | Reasoning | ToolCall | CachePoint


@attrs.frozen(kw_only=True)
class Turn:
    """One message: who speaks, and the parts in the order in which they were given."""

    role: Role
    parts: tuple[Part, ...] = ()
    call_id: str | None = None
    """Of a tool turn: the call whose result it is."""
    is_error: bool = False
    """Of a tool turn: the call failed."""

    @property
    def text(self) -> str:
        """All visible text of the turn, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str | None:
        """All reasoning of the turn, joined; None where the turn carries none at all."""
        found = [part.text for part in self.parts if isinstance(part, Reasoning)]
        return "".join(found) if found else None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of an assistant turn, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))
