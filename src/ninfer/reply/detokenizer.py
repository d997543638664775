"""Bytes to text, a token at a time.

It knows no tokens and no channels. Invariant: all output joined is the joined input decoded as UTF-8 in one go, with
U+FFFD for what is no UTF-8; a character is never split and goes out with the byte that completes it.
"""

import codecs


class Detokenizer:
    """Holds back at most the three bytes of an unfinished character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """The characters that `data` completes."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What the bytes still held decode to. The next byte begins a new text."""
        return self._decoder.decode(b"", final=True)
