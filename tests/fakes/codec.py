"""`ByteCodec`: a tokenizer of bytes and a few control tokens, for tests that need a `TokenCodec` and no artifact."""

import re

CONTROLS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")

_PATTERN = re.compile("(" + "|".join(re.escape(control) for control in CONTROLS) + ")")


class ByteCodec:
    """Ids 0 to 255 are bytes, the control tokens follow in the order of `CONTROLS`."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of `text`."""
        ids: list[int] = []
        for piece in _PATTERN.split(text):
            ids += (256 + CONTROLS.index(piece),) if piece in CONTROLS else piece.encode()
        return tuple(ids)

    def decode(self, tokens: tuple[int, ...]) -> str:
        """The text of `tokens`; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(bytes((token,)) if token < 256 else CONTROLS[token - 256].encode() for token in tokens).decode(
            errors="replace"
        )
