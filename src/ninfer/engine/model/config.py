"""The shape of a text model, read from a Hugging Face config.

Knows config keys and nothing about tensors, files or devices. Invariant: a `TextConfig` that exists describes a model
that the functions of this package compute exactly; whatever they cannot compute is refused here, naming the key.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias, TypeVar

import attrs
from attrs import validators

LayerKind: TypeAlias = Literal["full_attention", "linear_attention"]

CONV_TAPS = 4
"""Width of the convolution before the delta rule; a lane keeps the last `CONV_TAPS - 1` inputs."""

MAX_YARN_FACTOR = 4.0
"""Largest stretch of the rotary positions that is offered."""

MAX_NUMBER = 1 << 30
MAX_LAYERS = 1024
"""No model comes near these; a damaged config that does must not cost memory or overflow."""

_MODEL_TYPES = ("qwen3_5_text", "qwen3_5")
_REQUIRED_VALUES: tuple[tuple[str, object], ...] = (
    # key, the only value that the functions compute (absent means this value)
    ("attention_bias", False),
    ("attn_output_gate", True),
    ("hidden_act", "silu"),
    ("linear_conv_kernel_dim", CONV_TAPS),
)

_N = TypeVar("_N", int, float)


class ConfigError(ValueError):
    """A config that does not describe a supported text model. The message names the key."""


@attrs.frozen(kw_only=True)
class TextConfig:
    """A Qwen3.5-family dense text model. Sizes are element counts; model facts, sections 1 and 2."""

    vocab_size: int = attrs.field(validator=validators.ge(2))
    hidden_size: int = attrs.field(validator=validators.ge(1))
    intermediate_size: int = attrs.field(validator=validators.ge(1))
    layer_types: tuple[LayerKind, ...] = attrs.field(validator=validators.min_len(1))
    num_attention_heads: int = attrs.field(validator=validators.ge(1))
    num_key_value_heads: int = attrs.field(validator=validators.ge(1))
    head_dim: int = attrs.field(validator=validators.ge(2))
    linear_num_key_heads: int = attrs.field(validator=validators.ge(1))
    linear_num_value_heads: int = attrs.field(validator=validators.ge(1))
    linear_key_head_dim: int = attrs.field(validator=validators.ge(1))
    linear_value_head_dim: int = attrs.field(validator=validators.ge(1))
    max_position_embeddings: int = attrs.field(validator=validators.ge(1))
    rms_norm_eps: float = attrs.field(default=1e-6, validator=validators.gt(0))
    rope_theta: float = attrs.field(default=1e7, validator=validators.gt(0))
    partial_rotary_factor: float = attrs.field(default=0.25, validator=[validators.gt(0), validators.le(1)])
    mrope_section: tuple[int, int, int] = (11, 11, 10)
    """Rotary pairs that follow the temporal, height and width position."""
    tie_word_embeddings: bool = False
    mtp_layers: int = attrs.field(default=0, validator=validators.in_((0, 1)))
    """Blocks of the multi-token prediction head that the config names; the weights may still lack them."""
    rope_yarn_factor: float = attrs.field(default=1.0, validator=[validators.ge(1), validators.le(MAX_YARN_FACTOR)])
    """How far rotary positions reach beyond the native context (YaRN). The process chooses it, no config does."""

    def __attrs_post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ConfigError(
                f"num_attention_heads: {self.num_attention_heads} is no multiple of num_key_value_heads "
                f"({self.num_key_value_heads})"
            )
        if self.linear_num_value_heads % self.linear_num_key_heads:
            raise ConfigError(
                f"linear_num_value_heads: {self.linear_num_value_heads} is no multiple of linear_num_key_heads "
                f"({self.linear_num_key_heads})"
            )
        if self.rotary_dims % 2 or self.rotary_dims < 2:
            raise ConfigError(
                f"partial_rotary_factor: {self.partial_rotary_factor} of head_dim {self.head_dim} gives "
                f"{self.rotary_dims} rotated dimensions; an even number of at least 2 is needed"
            )
        if sum(self.mrope_section) != self.rotary_dims // 2:
            raise ConfigError(
                f"mrope_section: {list(self.mrope_section)} sums to {sum(self.mrope_section)}, "
                f"but there are {self.rotary_dims // 2} rotary pairs"
            )

    @property
    def ceiling_tokens(self) -> int:
        """Longest context that the positions reach: the native one, stretched."""
        return int(self.max_position_embeddings * self.rope_yarn_factor)

    @property
    def num_layers(self) -> int:
        """Layers of the trunk."""
        return len(self.layer_types)

    @property
    def full_layers(self) -> int:
        """Layers with attention over pages of keys and values."""
        return self.layer_types.count("full_attention")

    @property
    def linear_layers(self) -> int:
        """Layers with the gated delta rule."""
        return self.layer_types.count("linear_attention")

    @property
    def group_size(self) -> int:
        """Query heads that share one key-value head."""
        return self.num_attention_heads // self.num_key_value_heads

    @property
    def rotary_dims(self) -> int:
        """Leading dimensions of a head that are rotated."""
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def key_width(self) -> int:
        """Width of all delta-rule keys of one token."""
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_width(self) -> int:
        """Width of all delta-rule values of one token."""
        return self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return 2 * self.key_width + self.value_width


def parse_text_config(raw: Mapping[str, object]) -> TextConfig:
    """The text model of a Hugging Face config, alone or wrapped in `text_config`.

    Raises:
        ConfigError: a key is missing, has the wrong type, or asks for something that is not supported.
    """
    text, outer = raw, raw
    if "text_config" in raw:
        text = _mapping(raw, "text_config")
    _refuse_unsupported(text)
    rope = _rope(text)
    tied = text.get("tie_word_embeddings", outer.get("tie_word_embeddings", False))
    if text is not outer:  # the outer config rules a wrapped model
        tied = outer.get("tie_word_embeddings", tied)
    if not isinstance(tied, bool):
        raise ConfigError(f"tie_word_embeddings: expected true or false, got {tied!r}")
    heads = _number(text, "num_attention_heads", int)
    hidden = _number(text, "hidden_size", int)
    section = rope.get("mrope_section", [11, 11, 10])
    if not isinstance(section, list | tuple) or len(section) != 3 or not all(_is_int(n) and n >= 0 for n in section):
        raise ConfigError(f"mrope_section: expected three whole numbers, got {section!r}")
    factor = rope if "partial_rotary_factor" in rope else text
    return _build(
        vocab_size=_number(text, "vocab_size", int),
        hidden_size=hidden,
        intermediate_size=_number(text, "intermediate_size", int),
        layer_types=_layer_types(text),
        num_attention_heads=heads,
        num_key_value_heads=_number(text, "num_key_value_heads", int, heads),
        head_dim=_number(text, "head_dim", int, hidden // heads if heads > 0 else None),
        linear_num_key_heads=_number(text, "linear_num_key_heads", int),
        linear_num_value_heads=_number(text, "linear_num_value_heads", int),
        linear_key_head_dim=_number(text, "linear_key_head_dim", int),
        linear_value_head_dim=_number(text, "linear_value_head_dim", int),
        max_position_embeddings=_number(text, "max_position_embeddings", int),
        rms_norm_eps=_number(text, "rms_norm_eps", float, 1e-6),
        rope_theta=_number(rope if "rope_theta" in rope else text, "rope_theta", float, 1e7),
        partial_rotary_factor=_number(factor, "partial_rotary_factor", float, 0.25),
        mrope_section=(section[0], section[1], section[2]),
        tie_word_embeddings=tied,
        mtp_layers=_number(text, "mtp_num_hidden_layers", int, 0),
    )


def _build(**fields: object) -> TextConfig:
    """Construct, turning a validator's complaint into a message that starts with the key."""
    try:
        return TextConfig(**fields)  # type: ignore[arg-type]  # validated by the class
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:
        key = next((name for name in fields if f"'{name}'" in str(error)), "config")
        raise ConfigError(f"{key}: {fields.get(key)!r} is out of range ({error.args[0]})") from error


def _refuse_unsupported(text: Mapping[str, object]) -> None:
    kind = text.get("model_type", _MODEL_TYPES[0])
    if kind not in _MODEL_TYPES:
        raise ConfigError(f"model_type: {kind!r} is not supported; supported: {', '.join(_MODEL_TYPES)}")
    for key, only in _REQUIRED_VALUES:
        if text.get(key, only) != only:
            raise ConfigError(f"{key}: {text[key]!r} is not supported, only {only!r}")
    for key in ("num_experts", "mlp_only_layers"):
        if text.get(key):
            raise ConfigError(f"{key}: mixtures of experts are not supported")
    if text.get("mtp_use_dedicated_embeddings", False):
        raise ConfigError("mtp_use_dedicated_embeddings: a prediction head with its own embeddings is not supported")


def _rope(text: Mapping[str, object]) -> Mapping[str, object]:
    """The rotary settings: `rope_parameters` or its older name; `rope_type` may be spelled `type`."""
    name = "rope_parameters" if text.get("rope_parameters") is not None else "rope_scaling"
    if text.get(name) is None:
        return {}
    rope = _mapping(text, name)
    for key in ("rope_type", "type"):
        if rope.get(key, "default") not in ("default", "mrope"):
            raise ConfigError(f"{name}.{key}: {rope[key]!r} is not supported, only 'default'")
    if rope.get("mrope_interleaved", True) is not True:
        raise ConfigError(f"{name}.mrope_interleaved: only true is supported")
    return rope


def _layer_types(text: Mapping[str, object]) -> tuple[LayerKind, ...]:
    """The kinds as listed, or every `full_attention_interval`-th layer with full attention."""
    count = _number(text, "num_hidden_layers", int)
    if count > MAX_LAYERS:
        raise ConfigError(f"num_hidden_layers: {count} is above {MAX_LAYERS}")
    listed = text.get("layer_types")
    if listed is None:
        every = _number(text, "full_attention_interval", int, 4)
        if every < 1:
            raise ConfigError(f"full_attention_interval: {every} is below 1")
        return tuple("linear_attention" if (layer + 1) % every else "full_attention" for layer in range(count))
    if not isinstance(listed, list | tuple):
        raise ConfigError(f"layer_types: expected a list, got {listed!r}")
    kinds: list[LayerKind] = []
    for layer, kind in enumerate(listed):
        if kind == "full_attention":
            kinds.append("full_attention")
        elif kind == "linear_attention":
            kinds.append("linear_attention")
        else:
            raise ConfigError(f"layer_types[{layer}]: {kind!r} is neither 'full_attention' nor 'linear_attention'")
    if len(kinds) != count:
        raise ConfigError(f"layer_types: has {len(kinds)} entries, but num_hidden_layers is {count}")
    return tuple(kinds)


def _mapping(raw: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = raw[key]
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key}: expected an object, got {type(value).__name__}")
    return value


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(raw: Mapping[str, object], key: str, kind: type[_N], default: _N | None = None) -> _N:
    """A number of `raw`; absent or null means `default`, and without one the key is required."""
    value = raw.get(key)
    if value is None:
        if default is None:
            raise ConfigError(f"{key}: missing")
        return default
    if isinstance(value, int | float) and not isinstance(value, bool) and (kind is float or isinstance(value, int)):
        if not -MAX_NUMBER <= value <= MAX_NUMBER:
            raise ConfigError(f"{key}: out of range")
        return kind(value)
    raise ConfigError(f"{key}: expected a {'whole ' if kind is int else ''}number, got {value!r}")
