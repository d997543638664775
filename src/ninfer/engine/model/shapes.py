"""Which tensors a text model has, by logical name, and their shapes as Hugging Face stores them.

The one list of names and shapes: conversion and artifact checks use it without JAX, `weights.py` builds arrays by it.
"""

from typing import TypeAlias

from ninfer.engine.model.config import CONV_TAPS, TextConfig

Shape: TypeAlias = tuple[int, ...]


def tensor_shapes(config: TextConfig, *, mtp: bool = False) -> dict[str, Shape]:
    """Logical name -> shape as stored by Hugging Face, of every tensor of the model (with its MTP head if asked)."""
    hidden = config.hidden_size
    shapes: dict[str, Shape] = {"embed_tokens.weight": (config.vocab_size, hidden)}
    for layer, kind in enumerate(config.layer_types):
        shapes.update(_layer_shapes(config, f"layers.{layer}.", full=kind == "full_attention"))
    shapes["norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    if mtp:
        shapes["mtp.fc.weight"] = (hidden, 2 * hidden)
        shapes["mtp.pre_fc_norm_embedding.weight"] = (hidden,)
        shapes["mtp.pre_fc_norm_hidden.weight"] = (hidden,)
        shapes.update(_layer_shapes(config, "mtp.layers.0.", full=True))
        shapes["mtp.norm.weight"] = (hidden,)
    return shapes


def _layer_shapes(config: TextConfig, prefix: str, *, full: bool) -> dict[str, Shape]:
    hidden, inner = config.hidden_size, config.intermediate_size
    if full:
        heads, groups, width = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        mixer: dict[str, Shape] = {
            "self_attn.q_proj.weight": (2 * heads * width, hidden),
            "self_attn.k_proj.weight": (groups * width, hidden),
            "self_attn.v_proj.weight": (groups * width, hidden),
            "self_attn.o_proj.weight": (hidden, heads * width),
            "self_attn.q_norm.weight": (width,),
            "self_attn.k_norm.weight": (width,),
        }
    else:
        heads, channels, values = config.linear_num_value_heads, config.conv_channels, config.value_width
        mixer = {
            "linear_attn.in_proj_qkv.weight": (channels, hidden),
            "linear_attn.in_proj_z.weight": (values, hidden),
            "linear_attn.in_proj_a.weight": (heads, hidden),
            "linear_attn.in_proj_b.weight": (heads, hidden),
            "linear_attn.conv1d.weight": (channels, 1, CONV_TAPS),
            "linear_attn.A_log": (heads,),
            "linear_attn.dt_bias": (heads,),
            "linear_attn.norm.weight": (config.linear_value_head_dim,),
            "linear_attn.out_proj.weight": (hidden, values),
        }
    shapes: dict[str, Shape] = {
        "input_layernorm.weight": (hidden,),
        **mixer,
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    return {prefix + name: shape for name, shape in shapes.items()}
