"""The reasoning channel: which part of a reply is reasoning and which is the answer.

The family writes `<think>\\n...\\n</think>\\n\\n` before its answer; the prompt may already have opened the block. Both
markers are control tokens: text that merely spells one is text. Framing line breaks belong to neither channel. A close
marker counts only if a line break or the end of the reply follows; a marker quoted while reasoning stays reasoning
(THINK-019). It knows no token ids, no stop strings and no tool calls.

Invariant: outside framing line breaks and the two markers that open and close, every character goes to one channel.
"""

from collections.abc import Iterator
from typing import Literal, TypeAlias

Channel: TypeAlias = Literal["answer", "reasoning"]
Piece: TypeAlias = tuple[Channel, str]

_LINE_BREAKS = "\r\n"


class ChannelSplitter:
    """Takes text and markers in order, yields pieces of the two channels; pieces are never empty."""

    def __init__(self, *, opens_in_reasoning: bool) -> None:
        self.channel: Channel = "reasoning" if opens_in_reasoning else "answer"
        """Where the latest text or marker belongs."""
        self._may_open = True  # nothing but white space so far: an open marker would begin the block
        self._trims = opens_in_reasoning  # line breaks here are framing
        self._held = ""  # white space whose meaning is not known yet
        self._close: str | None = None  # a close marker whose meaning the next character decides

    def text(self, text: str) -> Iterator[Piece]:
        """Ordinary text."""
        if not text:
            return
        if self._close is not None:
            if text[0] in _LINE_BREAKS:
                self._leave()
            else:
                yield from self._unclose()
        if self._trims:
            text = text.lstrip(_LINE_BREAKS)
            if not text:
                return
        if self.channel == "answer" and self._may_open and text.isspace():
            self._held += text
            return
        self._trims = self._may_open = False
        text = self._held + text
        shown = len(text.rstrip(_LINE_BREAKS)) if self.channel == "reasoning" else len(text)
        self._held = text[shown:]
        if shown:
            yield self.channel, text[:shown]

    def open_marker(self, spelling: str) -> Iterator[Piece]:
        """The control token that opens a think block."""
        if self._may_open:
            self.channel, self._held, self._may_open, self._trims = "reasoning", "", False, True
        else:
            yield from self.text(spelling)

    def close_marker(self, spelling: str) -> Iterator[Piece]:
        """The control token that closes a think block."""
        if self.channel == "answer":
            yield from self.text(spelling)
            return
        yield from self._unclose()
        self._close, self._may_open = spelling, False

    def finish(self) -> Iterator[Piece]:
        """The reply has ended."""
        if self._close is not None:
            self._leave()
        if self._held:
            yield self.channel, self._held

    def _leave(self) -> None:
        """The held marker closes the block, and the white space before it was framing."""
        self.channel, self._close, self._held, self._trims = "answer", None, "", True

    def _unclose(self) -> Iterator[Piece]:
        """The held marker, if there is one, was a quotation."""
        if self._close is not None:
            quoted, self._close = self._close, None
            yield from self.text(quoted)
