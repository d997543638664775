"""A small model in the stacked form, and the same numbers in the per-layer form, for comparing the two."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from kernels_pallas.arrays import PackedMatrix
from kernels_pallas.quant_matmul import unpack_matrix
from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.weights import (
    AttentionWeights,
    DeltaNetWeights,
    LayerWeights,
    MlpWeights,
    TextWeights,
)
from ninfer.engine.programs.stacked import StackedWeights

SMALL = TextConfig(
    vocab_size=512,
    hidden_size=128,
    intermediate_size=192,
    layer_types=("linear_attention", "full_attention") * 2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
    max_position_embeddings=4096,
    mrope_section=(2, 1, 1),
)


_UNPACK = jax.jit(unpack_matrix)
"""Operation by operation every shape would be compiled some thirty times over."""


def per_layer(config: TextConfig, stacked: StackedWeights) -> TextWeights:
    """The numbers that the packed matrices stand for, as float32 arrays per layer."""
    attended, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    seen = {"linear_attention": 0, "full_attention": 0}
    layers = []
    for layer, kind in enumerate(config.layer_types):
        own, gains = seen[kind], stacked.gains - 1.0
        seen[kind] += 1
        if kind == "linear_attention":
            qkv, z = _cut(stacked.delta_in, own, (config.conv_channels, config.value_width))
            heads = config.linear_num_value_heads
            mixer: AttentionWeights | DeltaNetWeights = DeltaNetWeights(
                in_proj_qkv=qkv,
                in_proj_z=z,
                in_proj_a=stacked.delta.ab[own, :heads].astype(jnp.float32),
                in_proj_b=stacked.delta.ab[own, heads:].astype(jnp.float32),
                conv1d=stacked.delta.conv[own].T,
                a_log=stacked.delta.a_log[own],
                dt_bias=stacked.delta.dt_bias[own],
                norm=stacked.delta.norm[own],
                out_proj=_cut(stacked.delta_out, own, (config.hidden_size,))[0],
            )
        else:
            query, key, value = _cut(stacked.attention_in, own, (2 * attended, keys, keys))
            mixer = AttentionWeights(
                q_proj=query,
                k_proj=key,
                v_proj=value,
                o_proj=_cut(stacked.attention_out, own, (config.hidden_size,))[0],
                q_norm=stacked.query_gains[own] - 1.0,
                k_norm=stacked.key_gains[own] - 1.0,
            )
        gate, up = _cut(stacked.gate_up, layer, (config.intermediate_size,) * 2)
        layers.append(
            LayerWeights(
                input_norm=gains[2 * layer],
                mixer=mixer,
                post_attention_norm=gains[2 * layer + 1],
                mlp=MlpWeights(
                    gate_proj=gate, up_proj=up, down_proj=_cut(stacked.down, layer, (config.hidden_size,))[0]
                ),
            )
        )
    return TextWeights(
        embed=stacked.embed.astype(jnp.float32),
        layers=tuple(layers),
        norm=stacked.gains[-1] - 1.0,
        head=_cut(stacked.head, 0, (config.vocab_size,))[0],
    )


def _cut(matrix: PackedMatrix, layer: int, rows: Sequence[int]) -> list[jax.Array]:
    whole = _UNPACK(matrix, jnp.array([layer], jnp.int32))
    return [jnp.asarray(part) for part in np.split(np.asarray(whole), np.cumsum(rows)[:-1])]
