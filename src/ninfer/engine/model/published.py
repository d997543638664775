"""The shapes of published models, for measurements that need no file. Dimensions only."""

from ninfer.engine.model.config import LayerKind, TextConfig

_GROUP: tuple[LayerKind, ...] = ("linear_attention", "linear_attention", "linear_attention", "full_attention")

QWEN3_6_27B = TextConfig(
    vocab_size=248_320,
    hidden_size=5120,
    intermediate_size=17_408,
    layer_types=_GROUP * 16,
    num_attention_heads=24,
    num_key_value_heads=4,
    head_dim=256,
    linear_num_key_heads=16,
    linear_num_value_heads=48,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    max_position_embeddings=262_144,
    mtp_layers=1,
)
"""Qwen3.6-27B: 48 layers of the gated delta rule, 16 of attention."""

PUBLISHED = {"27b": QWEN3_6_27B}
"""Short name -> shape."""
