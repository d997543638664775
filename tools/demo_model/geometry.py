"""The demonstration model's shape: the config.json that ships, and a tiny one of the same kind for tests."""

from __future__ import annotations

from typing import Any

from ninfer.engine.model.config import TextConfig, parse_text_config


def raw_config(**changes: Any) -> dict[str, Any]:
    """config.json of the model; `changes` replace keys."""
    groups = changes.pop("groups", 3)
    raw: dict[str, Any] = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": 8192,
        "hidden_size": 384,
        "intermediate_size": 512,
        "num_hidden_layers": 4 * groups,
        "full_attention_interval": 4,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * groups,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "attn_output_gate": True,
        "attention_bias": False,
        "hidden_act": "silu",
        "linear_num_key_heads": 3,
        "linear_num_value_heads": 6,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
        },
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "dtype": "bfloat16",
        "mamba_ssm_dtype": "float32",
    }
    return raw | changes


def full() -> TextConfig:
    """The shape that ships."""
    return parse_text_config(raw_config())


def tiny() -> TextConfig:
    """One group of small layers."""
    rope = raw_config()["rope_parameters"] | {"mrope_section": [2, 1, 1]}
    return parse_text_config(
        raw_config(
            groups=1,
            hidden_size=64,
            intermediate_size=96,
            num_attention_heads=4,
            head_dim=32,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            rope_parameters=rope,
        )
    )
