"""The weights of a text model: pytrees with one array per tensor and layer, and the names they are stored under.

Logical names are the Hugging Face names without `model.language_model.` or `model.`; matrices are stored (N, K), one
row per output; how they lie on a device is the programs' choice. Knows no file format: tensors come from a
function. Invariant: `load_weights` returns arrays of exactly the shapes that `tensor_shapes` lists.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.reduce import Matrix
from ninfer.engine.model.shapes import tensor_shapes

GetTensor: TypeAlias = Callable[[str], np.ndarray]


class WeightError(ValueError):
    """A tensor that contradicts the config. The message names it."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class AttentionWeights:
    """Gated attention. H hidden, h query heads, kv key-value heads, d head width."""

    q_proj: Matrix
    """[h * 2d, H]: per head d query rows, then d gate rows."""
    k_proj: Matrix
    """[kv * d, H]"""
    v_proj: Matrix
    """[kv * d, H]"""
    o_proj: jax.Array
    """[H, h * d]"""
    q_norm: jax.Array
    """[d], zero-centred gain"""
    k_norm: jax.Array
    """[d], zero-centred gain"""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class DeltaNetWeights:
    """Gated delta net. Hv value heads, dk and dv head widths, C convolution channels (queries, keys, values)."""

    in_proj_qkv: Matrix
    """[C, H]"""
    in_proj_z: Matrix
    """[Hv * dv, H]"""
    in_proj_a: Matrix
    """[Hv, H]"""
    in_proj_b: Matrix
    """[Hv, H]"""
    conv1d: jax.Array
    """[C, 4]; tap 3 meets the newest input"""
    a_log: jax.Array
    """[Hv] float32"""
    dt_bias: jax.Array
    """[Hv] float32"""
    norm: jax.Array
    """[dv], plain gain"""
    out_proj: jax.Array
    """[H, Hv * dv]"""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class MlpWeights:
    """Gated feed-forward; I intermediate."""

    gate_proj: Matrix
    """[I, H]"""
    up_proj: Matrix
    """[I, H]"""
    down_proj: jax.Array
    """[H, I]"""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """One block: a mixer and a feed-forward, each behind its norm."""

    input_norm: jax.Array
    """[H], zero-centred gain"""
    mixer: AttentionWeights | DeltaNetWeights
    post_attention_norm: jax.Array
    """[H], zero-centred gain"""
    mlp: MlpWeights


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class MtpWeights:
    """The multi-token prediction head: joins an embedding and a hidden state, then one attention block."""

    fc: jax.Array
    """[H, 2H]; the embedding's half comes first"""
    embedding_norm: jax.Array
    """[H], zero-centred gain"""
    hidden_norm: jax.Array
    """[H], zero-centred gain"""
    layer: LayerWeights
    norm: jax.Array
    """[H], zero-centred gain"""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class TextWeights:
    """A whole text model; V vocabulary rows."""

    embed: jax.Array
    """[V, H]"""
    layers: tuple[LayerWeights, ...]
    norm: jax.Array
    """[H], zero-centred gain"""
    head: jax.Array | None
    """[V, H], or None when the embedding is the head too"""
    mtp: MtpWeights | None = None


_MIXER_NAMES: Mapping[type[AttentionWeights] | type[DeltaNetWeights], Mapping[str, str]] = {
    AttentionWeights: {
        name: f"self_attn.{name}.weight" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
    },
    DeltaNetWeights: {
        **{
            name: f"linear_attn.{name}.weight"
            for name in ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "conv1d", "norm", "out_proj")
        },
        "a_log": "linear_attn.A_log",
        "dt_bias": "linear_attn.dt_bias",
    },
}


def load_weights(config: TextConfig, get: GetTensor, *, mtp: bool = False, dtype: str = "float32") -> TextWeights:
    """Build the weights from `get(logical name)`; `a_log` and `dt_bias` stay float32 whatever `dtype` is.

    Raises:
        WeightError: a tensor has another shape than the config says.
    """
    shapes = tensor_shapes(config, mtp=mtp)

    def take(name: str) -> jax.Array:
        value = np.asarray(get(name))
        if value.shape != shapes[name]:
            raise WeightError(f"{name}: shape {list(value.shape)}, but the config says {list(shapes[name])}")
        if name.endswith("conv1d.weight"):
            value = value[:, 0, :]
        exact = name.endswith(("A_log", "dt_bias"))
        return jnp.asarray(value, dtype=jnp.float32 if exact else jnp.dtype(dtype))

    return _assemble(config, take, mtp=mtp)


def named_tensors(weights: TextWeights) -> Iterator[tuple[str, np.ndarray]]:
    """The inverse of `load_weights`: (logical name, array shaped as Hugging Face stores it), in a fixed order."""
    yield "embed_tokens.weight", np.asarray(weights.embed)
    for index, layer in enumerate(weights.layers):
        yield from _named_layer(layer, f"layers.{index}.")
    yield "norm.weight", np.asarray(weights.norm)
    if weights.head is not None:
        yield "lm_head.weight", np.asarray(weights.head)
    if weights.mtp is not None:
        yield "mtp.fc.weight", np.asarray(weights.mtp.fc)
        yield "mtp.pre_fc_norm_embedding.weight", np.asarray(weights.mtp.embedding_norm)
        yield "mtp.pre_fc_norm_hidden.weight", np.asarray(weights.mtp.hidden_norm)
        yield from _named_layer(weights.mtp.layer, "mtp.layers.0.")
        yield "mtp.norm.weight", np.asarray(weights.mtp.norm)


def _assemble(config: TextConfig, take: Callable[[str], jax.Array], *, mtp: bool) -> TextWeights:
    def layer(prefix: str, *, full: bool) -> LayerWeights:
        kind = AttentionWeights if full else DeltaNetWeights
        return LayerWeights(
            input_norm=take(f"{prefix}input_layernorm.weight"),
            mixer=kind(**{field: take(prefix + name) for field, name in _MIXER_NAMES[kind].items()}),
            post_attention_norm=take(f"{prefix}post_attention_layernorm.weight"),
            mlp=MlpWeights(
                gate_proj=take(f"{prefix}mlp.gate_proj.weight"),
                up_proj=take(f"{prefix}mlp.up_proj.weight"),
                down_proj=take(f"{prefix}mlp.down_proj.weight"),
            ),
        )

    return TextWeights(
        embed=take("embed_tokens.weight"),
        layers=tuple(
            layer(f"layers.{index}.", full=kind == "full_attention") for index, kind in enumerate(config.layer_types)
        ),
        norm=take("norm.weight"),
        head=None if config.tie_word_embeddings else take("lm_head.weight"),
        mtp=None
        if not mtp
        else MtpWeights(
            fc=take("mtp.fc.weight"),
            embedding_norm=take("mtp.pre_fc_norm_embedding.weight"),
            hidden_norm=take("mtp.pre_fc_norm_hidden.weight"),
            layer=layer("mtp.layers.0.", full=True),
            norm=take("mtp.norm.weight"),
        ),
    )


def _named_layer(layer: LayerWeights, prefix: str) -> Iterator[tuple[str, np.ndarray]]:
    yield f"{prefix}input_layernorm.weight", np.asarray(layer.input_norm)
    for field, name in _MIXER_NAMES[type(layer.mixer)].items():
        value = np.asarray(getattr(layer.mixer, field))
        yield prefix + name, value[:, None, :] if field == "conv1d" else value
    yield f"{prefix}post_attention_layernorm.weight", np.asarray(layer.post_attention_norm)
    for part in fields(layer.mlp):
        yield f"{prefix}mlp.{part.name}.weight", np.asarray(getattr(layer.mlp, part.name))
