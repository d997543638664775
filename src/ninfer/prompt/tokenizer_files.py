"""The tokenizer files of an artifact: read, checked against each other, and made ready for `Tokenizer`.

It knows the files' forms and no use of them. Invariant: what comes out is byte-level, every id stands for one byte
string, and the base vocabulary cannot spell a control token.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Self, TypeAlias

import attrs

from ninfer.prompt.byte_level import spell, to_bytes

JSONObject: TypeAlias = "dict[str, object]"

TOKEN_ROLES = ("bos_token", "eos_token", "pad_token", "unk_token")
"""Names under which a configuration, and a template, knows a control token by its role."""


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
class TokenizerFiles:
    """What the files say."""

    base: JSONObject
    """tokenizer.json without its added tokens."""
    controls: tuple[ControlToken, ...]
    token_bytes: tuple[bytes, ...]
    """Bytes of every id; b"" for ids that nothing uses."""
    stop_tokens: frozenset[int]
    named_tokens: Mapping[str, str]
    """Role (`eos_token`) -> spelling."""

    @classmethod
    def read(
        cls,
        tokenizer_json: bytes,
        *,
        tokenizer_config: bytes | None,
        special_tokens_map: bytes | None,
        generation_config: bytes | None,
        model_config: Mapping[str, object],
    ) -> Self:
        """Read the bytes of the files, and the members of the model's config that concern tokens.

        Raises:
            BadTokenizer: a file is malformed, files contradict each other, or the vocabulary is not byte-level.
        """
        data = _read_object("tokenizer.json", tokenizer_json)
        config = _read_object("tokenizer_config.json", tokenizer_config)
        roles = {
            "tokenizer_config.json": config,
            "special_tokens_map.json": _read_object("special_tokens_map.json", special_tokens_map),
        }
        eos = {
            "generation_config.json": _read_object("generation_config.json", generation_config).get("eos_token_id"),
            "config.json": model_config.get("eos_token_id"),
        }
        vocabulary = _vocabulary(data)
        controls = _control_tokens(data, config, vocabulary)
        for control in controls:
            _forget(data, vocabulary, control.text)
        spelled = {token_id: _bytes_of(spelling) for spelling, token_id in vocabulary.items()}
        spelled |= {control.id: control.text.encode() for control in controls}
        size = max(spelled, default=-1) + 1
        data["added_tokens"] = []
        return cls(
            base=data,
            controls=tuple(controls),
            token_bytes=tuple(spelled.get(token_id, b"") for token_id in range(size)),
            stop_tokens=_numbered(eos, size) | _spelled(roles, controls),
            named_tokens={
                name: text
                for file in reversed(roles.values())
                for name in TOKEN_ROLES
                if (text := _named(file, name)) is not None
            },
        )


def _read_object(name: str, data: bytes | None) -> JSONObject:
    """The JSON object in a file; empty where the artifact has no such file."""
    if data is None:
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadTokenizer(f"{name}: {error}") from error
    if not isinstance(value, dict):
        raise BadTokenizer(f"{name}: expected a JSON object, found {type(value).__name__}")
    return value


def _vocabulary(data: JSONObject) -> dict[str, int]:
    """Spelling -> id of the base vocabulary."""
    model, decoder = data.get("model"), data.get("decoder")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict) or not all(type(value) is int and value >= 0 for value in vocabulary.values()):
        raise BadTokenizer("tokenizer.json: model.vocab is no table of spellings and ids")
    if len(set(vocabulary.values())) != len(vocabulary):
        raise BadTokenizer("tokenizer.json: model.vocab gives one id to several spellings")
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


def _numbered(eos: Mapping[str, object], size: int) -> frozenset[int]:
    """Ids of the tokens that files name by number: an id, a list of them, or nothing."""
    stops: set[int] = set()
    for file, ids in eos.items():
        for token_id in ids if isinstance(ids, list) else [] if ids is None else [ids]:
            if type(token_id) is not int or not 0 <= token_id < size:
                raise BadTokenizer(f"{file}: eos_token_id {token_id!r} is no token id below {size}")
            stops.add(token_id)
    return frozenset(stops)


def _spelled(roles: Mapping[str, JSONObject], controls: Sequence[ControlToken]) -> frozenset[int]:
    """Ids of the tokens that files name as the end of a text."""
    stops: set[int] = set()
    for file, config in roles.items():
        text = _named(config, "eos_token")
        if text is not None:
            matching = [control.id for control in controls if control.text == text]
            if not matching:
                raise BadTokenizer(f"{file}: eos_token {text!r} is no added token")
            stops.update(matching)
    return frozenset(stops)
