"""Text to token ids and back, for byte-level vocabularies with control tokens.

Every added token of the artifact is a control token here, "special" or not, since each of them means more to the
model than its letters do. It knows no templates and no conversation; what is a caller's text and what is not is
decided in `control`.

Invariants: `encode_plain` never returns the id of a control token; `encode` splits at control tokens (leftmost, then
longest) and is `encode_plain` in between; the joined `token_bytes` of `encode(text)` are the normalised text.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self, TypeAlias

import attrs
import tokenizers

from ninfer.prompt.byte_level import spell, to_bytes

JSONObject: TypeAlias = "dict[str, object]"

_TOKEN_ROLES = ("bos_token", "eos_token", "pad_token", "unk_token")


class BadTokenizer(ValueError):
    """The artifact's tokenizer files cannot be used; the message names the file and the entry."""


@attrs.frozen(kw_only=True)
class ControlToken:
    """One added token of the artifact."""

    text: str
    id: int
    special: bool
    """Special tokens structure the conversation and are never part of a visible reply."""


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

    def __init__(
        self,
        *,
        plain: tokenizers.Tokenizer,
        controls: Sequence[ControlToken],
        token_bytes: Sequence[bytes],
        stop_tokens: frozenset[int],
        named_tokens: Mapping[str, str] | None = None,
    ) -> None:
        """Use `from_files`; `token_bytes` holds the bytes of every id, b"" for ids that nothing uses."""
        self._plain = plain
        self._token_bytes = tuple(token_bytes)
        self.control_tokens: Mapping[str, int] = {control.text: control.id for control in controls}
        """Spelling -> id, of every added token."""
        self.special_tokens = frozenset(control.id for control in controls if control.special)
        self.stop_tokens = stop_tokens
        """Ids that end a reply."""
        self.named_tokens: Mapping[str, str] = dict(named_tokens or {})
        """Spellings that templates may ask for by role: `bos_token`, `eos_token`, `pad_token`, `unk_token`."""
        longest_first = sorted(self.control_tokens, key=len, reverse=True)
        # An empty alternation would match everywhere; "(?!)" matches nowhere.
        self.control_pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        """Finds control tokens spelled in a text."""
        self.control_parts = ControlParts.of(self.control_tokens)

    @classmethod
    def from_files(
        cls, tokenizer_json: bytes, *, tokenizer_config: bytes | None = None, generation_config: bytes | None = None
    ) -> Self:
        """Build from the bytes of the artifact's files.

        `tokenizer_config` may carry added tokens that `tokenizer_json` lacks; the stop tokens are the
        `eos_token_id`s of `generation_config` and the `eos_token` of `tokenizer_config`.

        Raises:
            BadTokenizer: a file is malformed, files contradict each other, or the vocabulary is not byte-level.
        """
        data = _read_object("tokenizer.json", tokenizer_json)
        config = _read_object("tokenizer_config.json", tokenizer_config)
        generation = _read_object("generation_config.json", generation_config)
        vocabulary = _vocabulary(data)
        controls = _control_tokens(data, config, vocabulary)
        by_id = {control.id: control.text.encode() for control in controls}
        for control in controls:
            _forget(data, vocabulary, control.text)
        spelled = {token_id: _bytes_of(spelling) for spelling, token_id in vocabulary.items()} | by_id
        size = max(spelled, default=-1) + 1
        data["added_tokens"] = []
        try:
            plain = tokenizers.Tokenizer.from_str(json.dumps(data))
        except Exception as error:  # the library raises nothing narrower
            raise BadTokenizer(f"tokenizer.json: {error}") from error
        plain.no_truncation()
        plain.no_padding()
        return cls(
            plain=plain,
            controls=controls,
            token_bytes=[spelled.get(token_id, b"") for token_id in range(size)],
            stop_tokens=_stop_tokens(generation, config, controls, size),
            named_tokens={name: text for name in _TOKEN_ROLES if (text := _named(config, name)) is not None},
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
        # Only the library's batch calls let other threads run meanwhile; a long prompt takes a second.
        encodings = self._plain.encode_batch_fast([text for text, _ in pieces], add_special_tokens=False)
        ids: list[int] = []
        for encoding, (_, control) in zip(encodings, pieces, strict=True):
            ids += encoding.ids
            if control is not None:
                ids.append(control)
        return tuple(ids)

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


def _read_object(name: str, data: bytes | None) -> JSONObject:
    """The JSON object in a file; empty where the artifact has no such file."""
    if data is None:
        return {}
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BadTokenizer(f"{name}: {error}") from error
    if not isinstance(value, dict):
        raise BadTokenizer(f"{name}: expected a JSON object, found {type(value).__name__}")
    return value


def _vocabulary(data: JSONObject) -> dict[str, int]:
    """Spelling -> id of the base vocabulary."""
    model, decoder = data.get("model"), data.get("decoder")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict):
        raise BadTokenizer("tokenizer.json: model.vocab is no table of spellings and ids")
    if not isinstance(decoder, dict) or decoder.get("type") != "ByteLevel":
        raise BadTokenizer("tokenizer.json: decoder.type is not ByteLevel; only byte-level vocabularies are supported")
    return vocabulary


def _bytes_of(spelling: str) -> bytes:
    try:
        return to_bytes(spelling)
    except ValueError as error:
        raise BadTokenizer(f"tokenizer.json: model.vocab: {error}") from error


def _control_tokens(data: JSONObject, config: JSONObject, vocabulary: Mapping[str, int]) -> list[ControlToken]:
    """All added tokens by id, from both files."""
    entries: list[tuple[str, object]] = []
    listed, decoder = data.get("added_tokens") or [], config.get("added_tokens_decoder") or {}
    if not isinstance(listed, list) or not isinstance(decoder, dict):
        raise BadTokenizer("tokenizer files: added tokens are listed in an unknown form")
    entries += [(f"tokenizer.json: added_tokens[{at}]", entry) for at, entry in enumerate(listed)]
    for key, entry in decoder.items():
        where = f"tokenizer_config.json: added_tokens_decoder[{key!r}]"
        if not isinstance(entry, dict) or not key.isdecimal():
            raise BadTokenizer(f"{where}: expected an id and an object")
        entries.append((where, {**entry, "id": int(key)}))
    found: dict[int, ControlToken] = {}
    by_text = dict(vocabulary)
    spelled_at = {token_id: spelling for spelling, token_id in vocabulary.items()}
    for where, entry in entries:
        control = _control_token(where, entry)
        known = found.get(control.id)
        if known is not None and known.text != control.text:
            raise BadTokenizer(f"{where}: id {control.id} is {control.text!r} here and {known.text!r} elsewhere")
        if by_text.setdefault(control.text, control.id) != control.id:
            raise BadTokenizer(
                f"{where}: {control.text!r} has id {control.id} here and {by_text[control.text]} elsewhere"
            )
        if spelled_at.get(control.id, control.text) != control.text:
            raise BadTokenizer(f"{where}: id {control.id} already belongs to {spelled_at[control.id]!r}")
        found.setdefault(control.id, control)
    return [found[token_id] for token_id in sorted(found)]


def _control_token(where: str, entry: object) -> ControlToken:
    if not isinstance(entry, dict):
        raise BadTokenizer(f"{where}: expected an object")
    text, token_id = entry.get("content"), entry.get("id")
    if not isinstance(text, str) or not text or not isinstance(token_id, int) or token_id < 0:
        raise BadTokenizer(f"{where}: expected a content and an id")
    for flag in ("lstrip", "rstrip", "single_word"):
        if entry.get(flag):
            raise BadTokenizer(f"{where}: {flag} is not supported")
    return ControlToken(text=text, id=token_id, special=bool(entry.get("special")))


def _forget(data: JSONObject, vocabulary: dict[str, int], control: str) -> None:
    """Take a control token out of the base vocabulary and its merges, so that plain text can never become it."""
    written = [spelling for spelling in {control, spell(control.encode())} if spelling in vocabulary]
    for spelling in written:
        del vocabulary[spelling]
        model = data["model"]
        merges = model.get("merges") if isinstance(model, dict) else None
        if isinstance(model, dict) and isinstance(merges, list):
            # A merge is ["a", "b"], or "a b" in files of older make.
            model["merges"] = [
                merge
                for merge in merges
                if (merge.replace(" ", "") if isinstance(merge, str) else "".join(merge)) != spelling
            ]


def _named(config: JSONObject, role: str) -> str | None:
    """The spelling of the token that the configuration names for a role."""
    entry = config.get(role)
    text = entry.get("content") if isinstance(entry, dict) else entry
    return text if isinstance(text, str) else None


def _stop_tokens(
    generation: JSONObject, config: JSONObject, controls: Sequence[ControlToken], size: int
) -> frozenset[int]:
    ids = generation.get("eos_token_id")
    listed = ids if isinstance(ids, list) else [] if ids is None else [ids]
    stops: set[int] = set()
    for token_id in listed:
        if not isinstance(token_id, int) or not 0 <= token_id < size:
            raise BadTokenizer(f"generation_config.json: eos_token_id {token_id!r} is no token id below {size}")
        stops.add(token_id)
    text = _named(config, "eos_token")
    if text is not None:
        matching = [control.id for control in controls if control.text == text]
        if not matching:
            raise BadTokenizer(f"tokenizer_config.json: eos_token {text!r} is no added token")
        stops.update(matching)
    return frozenset(stops)
