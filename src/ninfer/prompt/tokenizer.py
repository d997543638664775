"""Text to token ids and back, for byte-level vocabularies with control tokens.

Every added token of the artifact is a control token here, "special" or not, since each of them means more to the
model than its letters do. It knows no templates and no conversation; what is a caller's text and what is not is
decided in `control`.

Invariants: `encode_plain` never returns the id of a control token; `encode` splits at control tokens (leftmost, then
longest) and is `encode_plain` in between; the joined `token_bytes` of `encode(text)` are the normalised text.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self

import attrs
import tokenizers

from ninfer.prompt.tokenizer_files import BadTokenizer, TokenizerFiles

SLICE_CHARS = 1 << 16
NORMALIZED_CHARS = 4
"""Most characters that a normaliser makes one of: a letter and its three accents."""

BORDER_TOKENS = 64
"""Far more than a text that is cut in two can have beyond what it has whole: the words across the border are few."""


@attrs.frozen(kw_only=True)
class ControlParts:
    """Proper, non-empty parts of all control tokens' spellings."""

    beginnings: frozenset[str]
    endings: frozenset[str]
    middles: frozenset[str]
    """Parts that are neither at the beginning nor at the end."""
    longest: int
    """Characters of the longest part."""

    @classmethod
    def of(cls, spellings: Iterable[str]) -> Self:
        """All parts of `spellings`."""
        spellings = tuple(spellings)
        return cls(
            beginnings=frozenset(text[:end] for text in spellings for end in range(1, len(text))),
            endings=frozenset(text[start:] for text in spellings for start in range(1, len(text))),
            middles=frozenset(
                text[start:end] for text in spellings for end in range(len(text)) for start in range(1, end)
            ),
            longest=max(map(len, spellings), default=1) - 1,
        )


class Tokenizer:
    """A byte-level tokenizer. Immutable after construction and safe to share between threads."""

    def __init__(self, files: TokenizerFiles) -> None:
        """Build from files that have been read.

        Raises:
            BadTokenizer: the library cannot make a tokenizer of them.
        """
        try:
            self._plain = tokenizers.Tokenizer.from_str(json.dumps(files.base))
        except Exception as error:  # the library raises nothing narrower
            raise BadTokenizer(f"tokenizer.json: {error}") from error
        self._plain.no_truncation()
        self._plain.no_padding()
        self._token_bytes = files.token_bytes
        self.control_tokens: Mapping[str, int] = {control.text: control.id for control in files.controls}
        """Spelling -> id, of every added token."""
        self.special_tokens = frozenset(control.id for control in files.controls if control.special)
        self.stop_tokens = files.stop_tokens
        """Ids that end a reply."""
        self.named_tokens = files.named_tokens
        """Spellings that templates may ask for by role: `bos_token`, `eos_token`, `pad_token`, `unk_token`."""
        longest_first = sorted(self.control_tokens, key=len, reverse=True)
        # An empty alternation would match everywhere; "(?!)" matches nowhere.
        self.control_pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        """Finds control tokens spelled in a text."""
        self.control_parts = ControlParts.of(self.control_tokens)
        composes = _normalizer(files.base) in (None, "NFC", "NFD")
        self.longest_token_chars = max(map(len, files.token_bytes), default=1) * NORMALIZED_CHARS if composes else None
        """No text has fewer tokens than its characters divided by this; None where texts may be normalised to less."""

    @classmethod
    def from_files(
        cls,
        tokenizer_json: bytes,
        *,
        tokenizer_config: bytes | None = None,
        special_tokens_map: bytes | None = None,
        generation_config: bytes | None = None,
        model_config: Mapping[str, object] | None = None,
    ) -> Self:
        """Build from the bytes of the artifact's files and the model's config.

        `tokenizer_config` may carry added tokens that `tokenizer_json` lacks. Stop tokens are all that any file names:
        `eos_token_id` of `generation_config` and `model_config`, `eos_token` of the two others.

        Raises:
            BadTokenizer: a file is malformed, files contradict each other, or the vocabulary is not byte-level.
        """
        return cls(
            TokenizerFiles.read(
                tokenizer_json,
                tokenizer_config=tokenizer_config,
                special_tokens_map=special_tokens_map,
                generation_config=generation_config,
                model_config=model_config or {},
            )
        )

    @property
    def vocabulary_tokens(self) -> int:
        """Ids that can be addressed: one more than the highest."""
        return len(self._token_bytes)

    @property
    def hidden_tokens(self) -> frozenset[int]:
        """Ids that are never shown in a reply: special tokens and stop tokens."""
        return self.special_tokens | self.stop_tokens

    def encode_plain(self, text: str) -> tuple[int, ...]:
        """Token ids of `text`, in which a spelled control token is text like any other."""
        return self.encode_pieces([(text, None)])

    def encode_pieces(self, pieces: Sequence[tuple[str, int | None]]) -> tuple[int, ...]:
        """Token ids of texts encoded as `encode_plain` does, each followed by a token of its own if there is one."""
        ids: list[int] = []
        for encoded, (_, control) in zip(self.encode_each([text for text, _ in pieces]), pieces, strict=True):
            ids += encoded
            if control is not None:
                ids.append(control)
        return tuple(ids)

    def encode_each(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, encoded as `encode_plain` does."""
        # Only the library's batch calls let other threads run meanwhile; a long prompt takes a second.
        return [encoding.ids for encoding in self._plain.encode_batch_fast(list(texts), add_special_tokens=False)]

    def least_tokens(self, texts: Sequence[str], most_tokens: int, between: Callable[[], None] = lambda: None) -> int:
        """A number of tokens that `texts` have together at least, above `most_tokens` if they have more by far.

        Encoded whole a text takes hundreds of bytes a token: here it is looked at in slices, and no further than that
        tells. What has no more than two bytes a token is small enough to be encoded, and not looked at. `between` is
        called between two slices.
        """
        if sum(len(text.encode()) for text in texts) <= 2 * most_tokens:
            return 0
        tokens = 0
        for batch, cuts in _slices(texts):
            between()
            encoded = self._plain.encode_batch_fast(batch, add_special_tokens=False)
            tokens += sum(map(len, encoded)) - cuts * BORDER_TOKENS
            if tokens > most_tokens:
                break
        return tokens

    def normalized(self, text: str) -> str:
        """`text` as the vocabulary spells it: the bytes of its tokens are those of this text."""
        normalizer = self._plain.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of `text`, with control tokens recognised where they are spelled out."""
        return self.encode_pieces(list(self.split(text)))

    def split(self, text: str) -> Iterator[tuple[str, int | None]]:
        """`text` cut at its control tokens: what precedes each and its id, at last the rest and None."""
        at = 0
        for found in self.control_pattern.finditer(text):
            yield text[at : found.start()], self.control_tokens[found.group()]
            at = found.end()
        yield text[at:], None

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes that `token` stands for; a control token's are its spelling in UTF-8.

        Raises:
            ValueError: the tokenizer has no such id.
        """
        if not 0 <= token < len(self._token_bytes):
            raise ValueError(f"token {token} is outside the vocabulary of {len(self._token_bytes)}")
        return self._token_bytes[token]

    def decode(self, tokens: tuple[int, ...]) -> str:
        """The text of `tokens`, control tokens spelled out, U+FFFD for bytes that are no UTF-8."""
        return b"".join(map(self.token_bytes, tokens)).decode("utf-8", "replace")


def _normalizer(base: Mapping[str, object]) -> object:
    """The kind of the vocabulary's normaliser, None for none."""
    normalizer = base.get("normalizer")
    return normalizer.get("type") if isinstance(normalizer, dict) else normalizer


def _slices(texts: Iterable[str]) -> Iterator[tuple[list[str], int]]:
    """Batches of about `SLICE_CHARS` characters of `texts`, and how often each batch cuts one."""
    batch: list[str] = []
    chars = cuts = 0
    for text in texts:
        for at in range(0, len(text), SLICE_CHARS):
            batch.append(text[at : at + SLICE_CHARS])
            chars += len(batch[-1])
            cuts += at > 0
            if chars >= SLICE_CHARS:
                yield batch, cuts
                batch, chars, cuts = [], 0, 0
    yield batch, cuts
