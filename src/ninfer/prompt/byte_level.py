"""The byte-level alphabet: how a byte-level vocabulary spells raw bytes as printable characters.

Bytes that print stand for themselves; the others are moved, in order, to the characters from U+0100 on. It knows no
tokenizer. Invariant: `to_bytes` undoes the spelling for every byte string.
"""

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))


def _alphabet() -> dict[int, str]:
    """All 256 bytes -> the character that spells them."""
    moved = [byte for byte in range(256) if byte not in _PRINTABLE]
    return {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(0x100 + at) for at, byte in enumerate(moved)}


CHARACTER_OF_BYTE = _alphabet()
"""byte (0..255) -> its character."""

# Characters that spell nothing are moved out of Latin-1, so that encoding to it finds them.
_LATIN_1 = dict.fromkeys(range(256), "\uffff") | {ord(text): chr(byte) for byte, text in CHARACTER_OF_BYTE.items()}


def spell(data: bytes) -> str:
    """The spelling of `data` in a byte-level vocabulary."""
    return "".join(CHARACTER_OF_BYTE[byte] for byte in data)


def to_bytes(spelling: str) -> bytes:
    """The raw bytes that a token's spelling stands for.

    Raises:
        ValueError: a character is not of the alphabet: the vocabulary is not byte-level.
    """
    try:
        return spelling.translate(_LATIN_1).encode("latin-1")
    except UnicodeEncodeError as error:
        raise ValueError(f"{spelling!r} is not spelled in the byte-level alphabet") from error
