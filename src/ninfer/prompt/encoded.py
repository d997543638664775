"""A rendering as tokens, and places of the rendering as numbers of tokens.

Invariant: the tokens are those of the pieces between control tokens, each encoded for itself, and the control tokens.
"""

from bisect import bisect_left, bisect_right
from itertools import accumulate

from ninfer.conversation import ContextExceeded
from ninfer.prompt.control import SafeRendering
from ninfer.prompt.tokenizer import Tokenizer

MOST_TOKENS = 1 << 20
"""Prompts of more are not encoded, not even to be counted: a megabyte takes a quarter of a gigabyte meanwhile."""


class EncodedRendering:
    """The tokens of one rendering."""

    def __init__(self, rendering: SafeRendering, tokenizer: Tokenizer, most_tokens: int = MOST_TOKENS) -> None:
        """Encode `rendering`.

        Raises:
            ContextExceeded: it has more than `most_tokens` tokens by far.
        """
        self._rendering = rendering
        self._tokenizer = tokenizer
        pieces = list(tokenizer.split(rendering.text))
        texts = [rendering.restore(text) for text, _ in pieces]
        if tokenizer.exceeds(texts, most_tokens):
            raise ContextExceeded(f"the prompt has more than {most_tokens} tokens, which is beyond every context here")
        self._ids = tokenizer.encode_each(texts)
        """Of the text of each piece."""
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
