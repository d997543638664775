"""The weights of the stacked form: one array for each plane of each kind of matrix, all layers in it.

Matrices with the same input are one matrix: [qkv | z] of a delta net, [q and gate | k | v] of attention, [gate | up].
The two small gate matrices of a delta net stay apart, in bfloat16: its kernel multiplies with them itself. Planes come
packed, as an artifact stores them, and are copied into their stack one by one, so that a start repacks nothing and
holds no model twice. Knows logical names; does not know files.

Symbols: L layers, Ld delta-net layers, La attention layers, H hidden, V vocabulary rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from kernels_pallas import packing
from kernels_pallas.arrays import PackedMatrix
from kernels_pallas.gdn_step import GdnWeights
from ninfer.engine.model.config import CONV_TAPS, LayerKind, TextConfig

Planes: TypeAlias = Mapping[str, NDArray[np.generic]]
"""Packed planes of one matrix, by the names of `kernels_pallas.packing`."""

MIXERS: Mapping[LayerKind, tuple[Sequence[str], str]] = {
    "linear_attention": (("linear_attn.in_proj_qkv", "linear_attn.in_proj_z"), "linear_attn.out_proj"),
    "full_attention": (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "self_attn.o_proj"),
}
"""Per kind of layer: the matrices that are merged, in their order, and the one that leads back."""

MLP = ("mlp.gate_proj", "mlp.up_proj")


class Packed(Protocol):
    """A matrix in its stored form."""

    @property
    def format(self) -> str:
        """Name of the numeric format."""
        ...

    @property
    def planes(self) -> Planes:
        """Its packed planes."""
        ...


class PackedSource(Protocol):
    """Where tensors come from: an artifact, or a test's own."""

    def packed(self, name: str) -> Packed:
        """Matrix `name`, packed."""
        ...

    def read(self, name: str) -> NDArray[np.float32]:
        """Tensor `name` as numbers."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class StackedWeights:
    """Everything that a step reads."""

    embed: jax.Array
    """bfloat16 [V, H]"""
    delta_in: PackedMatrix
    """[Ld] of [C + Hv * dv, H]"""
    delta: GdnWeights
    delta_out: PackedMatrix
    """[Ld] of [H, Hv * dv]"""
    attention_in: PackedMatrix
    """[La] of [2 * h * d + 2 * kv * d, H]"""
    query_gains: jax.Array
    """float32 [La, d]: 1 + weight"""
    key_gains: jax.Array
    """float32 [La, d]"""
    attention_out: PackedMatrix
    """[La] of [H, h * d]"""
    gate_up: PackedMatrix
    """[L] of [2 * I, H]"""
    down: PackedMatrix
    """[L] of [H, I]"""
    gains: jax.Array
    """float32 [2 L + 1, H], 1 + weight: before mixer and before feed-forward of each layer, then the final norm"""
    head: PackedMatrix
    """[1] of [V, H]"""


def weight_name(layer: int, matrix: str) -> str:
    """Logical name of a matrix of the trunk."""
    return f"layers.{layer}.{matrix}.weight"


def layers_of(config: TextConfig, kind: LayerKind) -> tuple[int, ...]:
    """Numbers of the layers of a kind."""
    return tuple(layer for layer, own in enumerate(config.layer_types) if own == kind)


def load_stacked(config: TextConfig, source: PackedSource) -> StackedWeights:
    """Copy every tensor of the trunk to the device. Blocks.

    Raises:
        ValueError: matrices that have to be merged or stacked have different formats.
    """
    delta, attention = layers_of(config, "linear_attention"), layers_of(config, "full_attention")
    every = tuple(range(config.num_layers))

    def stack(layers: Sequence[int], matrices: Sequence[str]) -> PackedMatrix:
        names = [[weight_name(layer, matrix) for matrix in matrices] for layer in layers]
        return stack_planes(names, source.packed)

    def vectors(layers: Sequence[int], name: str, plus: float = 0.0) -> jax.Array:
        return jnp.asarray(np.stack([source.read(f"layers.{layer}.{name}") for layer in layers]) + np.float32(plus))

    linear, full = MIXERS["linear_attention"], MIXERS["full_attention"]
    gains = [source.read(f"layers.{layer}.{norm}.weight") for layer in every for norm in _NORMS]
    return StackedWeights(
        embed=_embedding(source),
        delta_in=stack(delta, linear[0]),
        delta=_delta_vectors(vectors, delta),
        delta_out=stack(delta, (linear[1],)),
        attention_in=stack(attention, full[0]),
        query_gains=vectors(attention, "self_attn.q_norm.weight", 1.0),
        key_gains=vectors(attention, "self_attn.k_norm.weight", 1.0),
        attention_out=stack(attention, (full[1],)),
        gate_up=stack(every, MLP),
        down=stack(every, ("mlp.down_proj",)),
        gains=jnp.asarray(np.stack([*gains, source.read("norm.weight")]) + np.float32(1)),
        head=stack_planes([["lm_head.weight"]], source.packed),
    )


_NORMS = ("input_layernorm", "post_attention_layernorm")


def _embedding(source: PackedSource) -> jax.Array:
    """bfloat16 [V, H]: as it is stored, where it is; 27B's would take 5 GB as float32."""
    stored = source.packed("embed_tokens.weight")
    values = stored.planes["values"] if stored.format == "bf16" else source.read("embed_tokens.weight")
    return jnp.asarray(values, jnp.bfloat16)


def _delta_vectors(vectors: Callable[..., jax.Array], layers: Sequence[int]) -> GdnWeights:
    """The delta net's own small tensors."""
    both = [vectors(layers, f"linear_attn.in_proj_{gate}.weight") for gate in ("a", "b")]
    return GdnWeights(
        ab=jnp.concatenate(both, axis=1).astype(jnp.bfloat16),
        conv=jnp.swapaxes(vectors(layers, "linear_attn.conv1d.weight")[:, :, 0, :], 1, 2),
        a_log=vectors(layers, "linear_attn.A_log"),
        dt_bias=vectors(layers, "linear_attn.dt_bias"),
        norm=vectors(layers, "linear_attn.norm.weight"),
    )


def stack_planes(names: Sequence[Sequence[str]], packed: Callable[[str], Packed]) -> PackedMatrix:
    """One matrix per entry of `names`, merged of the tensors that it lists, along N.

    Raises:
        ValueError: the tensors have different formats.
    """
    first = [packed(name) for name in names[0]]
    form, example = first[0].format, first[0].planes
    widths = {plane: sum(part.planes[plane].shape[0] for part in first) for plane in example}
    # A plane that lies along rows has N entries, the others one for each tile of 16 rows.
    stacks = {
        plane: _zeros((len(names), width, *example[plane].shape[1:]), example[plane].dtype)
        for plane, width in widths.items()
    }
    for layer, parts in enumerate(names):
        at = dict.fromkeys(stacks, 0)
        for name in parts:
            part = packed(name)
            if part.format != form:
                raise ValueError(f"{name} is {part.format}, but it shares a stack with {names[0][0]}, which is {form}")
            for plane, values in part.planes.items():
                stacks[plane] = _put(stacks[plane], np.asarray(values), layer, at[plane])
                at[plane] += values.shape[0]
    return PackedMatrix(**stacks, format=form)


@partial(jax.jit, static_argnums=(0, 1))
def _zeros(shape: tuple[int, ...], dtype: "np.dtype[np.generic]") -> jax.Array:
    return jnp.zeros(shape, dtype)


@partial(jax.jit, donate_argnums=0)
def _put(stack: jax.Array, part: jax.Array, layer: int, at: int) -> jax.Array:
    """Overwrite part of one layer, in place."""
    return lax.dynamic_update_slice(stack, part[None], (layer, at, *[0] * (part.ndim - 1)))


def stacked_shapes(config: TextConfig, formats: Callable[[str], str]) -> StackedWeights:
    """What `load_stacked` gives, with shapes in the place of arrays; `formats` tells a matrix's format by its name."""
    shapes: StackedWeights = jax.eval_shape(lambda: _zero_weights(config, formats))
    return shapes


def _zero_weights(config: TextConfig, formats: Callable[[str], str]) -> StackedWeights:
    delta, attention = layers_of(config, "linear_attention"), layers_of(config, "full_attention")
    every, hidden, heads = tuple(range(config.num_layers)), config.hidden_size, config.linear_num_value_heads
    shapes = matrix_shapes(config)

    def stack(count: int, names: Sequence[str]) -> PackedMatrix:
        form, rows = formats(names[0]), sum(shapes[name][0] for name in names)
        planes = packing.plane_specs(form, rows, shapes[names[0]][1])
        stacks = {plane: jnp.zeros((count, *spec.shape), spec.dtype) for plane, spec in planes.items()}
        return PackedMatrix(**stacks, format=form)

    def layered(layers: Sequence[int], matrices: Sequence[str]) -> PackedMatrix:
        return stack(len(layers), [weight_name(layers[0], matrix) for matrix in matrices])

    linear, full = MIXERS["linear_attention"], MIXERS["full_attention"]
    return StackedWeights(
        embed=jnp.zeros((config.vocab_size, hidden), jnp.bfloat16),
        delta_in=layered(delta, linear[0]),
        delta=GdnWeights(
            ab=jnp.zeros((len(delta), 2 * heads, hidden), jnp.bfloat16),
            conv=jnp.zeros((len(delta), CONV_TAPS, config.conv_channels)),
            a_log=jnp.zeros((len(delta), heads)),
            dt_bias=jnp.zeros((len(delta), heads)),
            norm=jnp.zeros((len(delta), config.linear_value_head_dim)),
        ),
        delta_out=layered(delta, (linear[1],)),
        attention_in=layered(attention, full[0]),
        query_gains=jnp.zeros((len(attention), config.head_dim)),
        key_gains=jnp.zeros((len(attention), config.head_dim)),
        attention_out=layered(attention, (full[1],)),
        gate_up=layered(every, MLP),
        down=layered(every, ("mlp.down_proj",)),
        gains=jnp.zeros((2 * config.num_layers + 1, hidden)),
        head=stack(1, ("lm_head.weight",)),
    )


def weight_bytes(config: TextConfig, formats: Callable[[str], str]) -> int:
    """Device bytes of the stacked weights of `config`, where `formats` tells the format of a matrix by its name."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(stacked_shapes(config, formats)))


def matrix_shapes(config: TextConfig) -> dict[str, tuple[int, int]]:
    """Name -> (N, K) of each matrix that is multiplied packed."""
    hidden, inner = config.hidden_size, config.intermediate_size
    attended = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    sizes = {
        "linear_attn.in_proj_qkv": (config.conv_channels, hidden),
        "linear_attn.in_proj_z": (config.value_width, hidden),
        "linear_attn.out_proj": (hidden, config.value_width),
        "self_attn.q_proj": (2 * attended, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, attended),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    shapes = {}
    for layer, kind in enumerate(config.layer_types):
        merged, out = MIXERS[kind]
        for matrix in (*merged, out, *MLP, "mlp.down_proj"):
            shapes[weight_name(layer, matrix)] = sizes[matrix]
    shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes
