"""A rendering as tokens, and places of the rendering as numbers of tokens.

Invariant: the tokens are those of the pieces between control tokens, each encoded for itself, and the control tokens.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from ninfer.conversation import ContextExceeded
from ninfer.prompt.bounds import Cancellation
from ninfer.prompt.control import SafeRendering
from ninfer.prompt.tokenizer import Tokenizer

MOST_TOKENS = 1 << 20
"""Prompts of more are not encoded, not even to be counted: a megabyte takes a quarter of a gigabyte meanwhile."""

BATCH_CHARS = 1 << 20


def too_many(at_least: int, most_tokens: int) -> ContextExceeded:
    """The error of a prompt with more tokens than `most_tokens`; their exact number is not known."""
    return ContextExceeded(
        f"the prompt has at least {at_least} tokens; prompts of more than {most_tokens} tokens are beyond the context "
        "ceiling"
    )


class EncodedRendering:
    """The tokens of one rendering."""

    def __init__(
        self,
        rendering: SafeRendering,
        tokenizer: Tokenizer,
        most_tokens: int = MOST_TOKENS,
        cancellation: Cancellation | None = None,
    ) -> None:
        """Encode `rendering`.

        Raises:
            ContextExceeded: it has more than `most_tokens` tokens by far.
            Abandoned: `cancellation` has told so.
        """
        self._rendering = rendering
        self._tokenizer = tokenizer
        check = (cancellation or Cancellation()).check
        pieces = list(tokenizer.split(rendering.text))
        texts = [rendering.restore(text) for text, _ in pieces]
        at_least = tokenizer.least_tokens(texts, most_tokens, check) + len(pieces) - 1
        if at_least > most_tokens:
            raise too_many(at_least, most_tokens)
        self._ids: list[list[int]] = []
        """Of the text of each piece."""
        for batch in _batches(texts):
            check()
            self._ids += tokenizer.encode_each(batch)
        self._starts: list[int] = []
        """Characters of the rendering before each piece."""
        self._tokens_before: list[int] = []
        tokens: list[int] = []
        place = 0
        for (text, control), ids in zip(pieces, self._ids, strict=True):
            self._starts.append(place)
            self._tokens_before.append(len(tokens))
            tokens += ids
            place += len(text)
            if control is not None:
                tokens.append(control)
                place += len(tokenizer.token_bytes(control).decode())
        self.tokens = tuple(tokens)
        """The prompt."""

    def tokens_before(self, place: int) -> int | None:
        """Tokens that make exactly the first `place` characters of the rendering; None if a token crosses the place."""
        piece = bisect_right(self._starts, place) - 1
        start, before, ids = self._starts[piece], self._tokens_before[piece], self._ids[piece]
        if place == start:
            return before
        text = self._tokenizer.normalized(self._rendering.restore(self._rendering.text[start:place])).encode()
        ends = list(accumulate(len(self._tokenizer.token_bytes(token)) for token in ids))
        count = bisect_left(ends, len(text)) + 1
        head = b"".join(map(self._tokenizer.token_bytes, ids[:count]))
        # Text before the place may be normalised together with text behind it: then the bytes differ.
        return before + count if head == text else None


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """`texts` in their order, together about `BATCH_CHARS` characters at a time."""
    begin = chars = 0
    for end, text in enumerate(texts, 1):
        chars += len(text)
        if chars >= BATCH_CHARS or end == len(texts):
            yield texts[begin:end]
            begin, chars = end, 0
