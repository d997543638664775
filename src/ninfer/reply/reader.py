"""From the tokens of a reply to text events.

Composes detokenizer, reasoning channel and stop strings. It knows no tokenizer (only what `ReplyTokens` tells), no
engine, no protocol. A pure function of the token stream: how the tokens are grouped into calls changes nothing but the
grouping of the deltas.
"""

from collections.abc import Callable, Iterable, Iterator

import attrs

from ninfer.conversation import TextDelta
from ninfer.reply.channels import Channel, ChannelSplitter, Piece
from ninfer.reply.detokenizer import Detokenizer
from ninfer.reply.stops import StopCutter


@attrs.frozen(kw_only=True)
class ReplyTokens:
    """What a reader must know of the tokenizer."""

    token_bytes: Callable[[int], bytes]
    """Id -> exact bytes; a control token's spelling."""
    hidden: frozenset[int] = frozenset()
    """Ids that are never shown: special tokens and stop tokens."""
    reasoning_open: int | None = None
    """The control token that opens a think block; None where the tokenizer has none."""
    reasoning_close: int | None = None


class ReplyReader:
    """Reads one reply. `feed` what the engine commits, then `finish` once; after a stop string nothing is read."""

    def __init__(self, tokens: ReplyTokens, *, opens_in_reasoning: bool = False, stops: Iterable[str] = ()) -> None:
        """`stops` end the reply in either channel, and are not shown."""
        self._tokens = tokens
        self._stops = tuple(stops)
        self._detokenizer = Detokenizer()
        self._splitter = ChannelSplitter(opens_in_reasoning=opens_in_reasoning)
        self._cutter = StopCutter(self._stops)
        self._cut_channel: Channel = self._splitter.channel
        self.stop: str | None = None
        """The stop string that has ended the reply."""
        self.consumed_tokens = 0
        """Tokens read; those after the one that completed a stop string are not."""
        self.reasoning_tokens = 0
        """Tokens of the think block, its markers included."""

    @property
    def reasoning_open(self) -> bool:
        """Whether the reply, as far as it was read, stands inside a think block."""
        return self._splitter.channel == "reasoning"

    def feed(self, tokens: Iterable[int]) -> list[TextDelta]:
        """The text that `tokens` complete, in order, one delta per run of a channel; often none."""
        shown: list[Piece] = []
        for token in tokens:
            if self.stop is not None:
                break
            self.consumed_tokens += 1
            if token in self._tokens.hidden:
                continue
            shown += self._cut(self._pieces(token))
            self.reasoning_tokens += self._splitter.channel == "reasoning"
        return _deltas(shown)

    def finish(self) -> list[TextDelta]:
        """What was still held back when the reply ended. It may yet complete a stop string."""
        if self.stop is not None:
            return []
        shown = list(self._cut(self._splitter.text(self._detokenizer.finish())))
        shown += self._cut(self._splitter.finish())
        if self.stop is None:
            shown.append((self._cut_channel, self._cutter.finish()))
        return _deltas(shown)

    def _pieces(self, token: int) -> Iterator[Piece]:
        data = self._tokens.token_bytes(token)
        if token not in (self._tokens.reasoning_open, self._tokens.reasoning_close):
            yield from self._splitter.text(self._detokenizer.feed(data))
            return
        yield from self._splitter.text(self._detokenizer.finish())
        marker = self._splitter.open_marker if token == self._tokens.reasoning_open else self._splitter.close_marker
        yield from marker(data.decode())

    def _cut(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """`pieces` up to a stop string. A stop lies within one channel."""
        for channel, text in pieces:
            if channel != self._cut_channel:
                yield self._cut_channel, self._cutter.finish()
                self._cut_channel, self._cutter = channel, StopCutter(self._stops)
            yield channel, self._cutter.feed(text)
            if self._cutter.hit is not None:
                self.stop = self._cutter.hit
                return


def _deltas(pieces: Iterable[Piece]) -> list[TextDelta]:
    """Pieces of one channel joined, empty ones left out."""
    deltas: list[TextDelta] = []
    for channel, text in pieces:
        if not text:
            continue
        if deltas and deltas[-1].channel == channel:
            deltas[-1] = TextDelta(deltas[-1].text + text, channel)
        else:
            deltas.append(TextDelta(text, channel))
    return deltas
