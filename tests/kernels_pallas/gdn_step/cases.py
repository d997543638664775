"""Random layers, rows and states of the delta net, and the engine's formulas for them: the judge of both kernels."""

import jax
import jax.numpy as jnp
import numpy as np

from kernels_pallas.arrays import Activation
from kernels_pallas.gdn_step import GdnSizes, GdnState, GdnWeights
from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.norms import gated_rms_norm
from ninfer.engine.model.weights import DeltaNetWeights

EPS = 1e-6
LAYERS, SLOTS = 2, 3
TINY = GdnSizes(key_heads=2, value_heads=6, key_dim=16, value_dim=32)
"""The sizes of the golden model."""
HIDDEN = 64


def random_weights(seed: int, sizes: GdnSizes = TINY, hidden: int = HIDDEN) -> GdnWeights:
    """Spread like the golden model's."""
    rng = np.random.default_rng(seed)
    heads = sizes.value_heads
    return GdnWeights(
        ab=jnp.asarray(rng.standard_normal((LAYERS, 2 * heads, hidden)) / hidden**0.5, jnp.bfloat16),
        conv=jnp.asarray(0.5 * rng.standard_normal((LAYERS, 4, sizes.channels)), jnp.float32),
        a_log=jnp.asarray(np.log(rng.uniform(0.2, 4.0, (LAYERS, heads))), jnp.float32),
        dt_bias=jnp.asarray(rng.standard_normal((LAYERS, heads)) - 2.0, jnp.float32),
        norm=jnp.asarray(1.0 + 0.1 * rng.standard_normal((LAYERS, sizes.value_dim)), jnp.float32),
    )


def random_state(seed: int, sizes: GdnSizes = TINY) -> GdnState:
    """Slots in use: nothing in them is zero."""
    rng = np.random.default_rng(seed)
    matrix = (LAYERS, SLOTS, sizes.value_heads, sizes.key_dim, sizes.value_dim)
    return GdnState(
        recurrent=jnp.asarray(rng.standard_normal(matrix), jnp.float32),
        conv=jnp.asarray(rng.standard_normal((LAYERS, SLOTS, 4, sizes.channels)), jnp.float32),
    )


def random_rows(seed: int, rows: int, sizes: GdnSizes = TINY, hidden: int = HIDDEN) -> tuple[jax.Array, Activation]:
    """What a projection leaves for `rows` tokens, and its input: a residual of which a norm is pending."""
    rng = np.random.default_rng(seed)
    residual = 3.0 * rng.standard_normal((rows, hidden))
    squares = (residual**2).reshape(rows, hidden // 16, 16).sum(-1)
    x = Activation(
        values=jnp.asarray(residual * 2.0**-3, jnp.float16),
        squares=jnp.asarray(squares, jnp.float32),
        shift=3,
        eps=EPS,
    )
    return jnp.asarray(rng.standard_normal((rows, sizes.channels + sizes.values)), jnp.float32), x


def normed(x: Activation) -> jax.Array:
    """float32 [M, H]: what an activation stands for."""
    assert x.squares is not None
    scale = jax.lax.rsqrt(jnp.sum(x.squares, axis=-1, keepdims=True) / x.values.shape[-1] + x.eps)
    return x.values.astype(jnp.float32) * 2.0**x.shift * scale


def config_of(sizes: GdnSizes, hidden: int = HIDDEN) -> TextConfig:
    """The engine's name for these sizes."""
    return TextConfig(
        vocab_size=320,
        hidden_size=hidden,
        intermediate_size=96,
        layer_types=("linear_attention",),
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        linear_num_key_heads=sizes.key_heads,
        linear_num_value_heads=sizes.value_heads,
        linear_key_head_dim=sizes.key_dim,
        linear_value_head_dim=sizes.value_dim,
        max_position_embeddings=4096,
        mrope_section=(2, 1, 1),
        rms_norm_eps=EPS,
    )


def engine_weights(weights: GdnWeights, layer: int, sizes: GdnSizes) -> DeltaNetWeights:
    """One layer for the engine's functions, with projections that only take [mixed, z, a, b] apart."""
    cuts = np.cumsum([sizes.channels, sizes.values, sizes.value_heads, sizes.value_heads])
    mixed, z, a, b = np.split(np.eye(cuts[-1], dtype=np.float32), cuts[:-1])
    return DeltaNetWeights(
        in_proj_qkv=jnp.asarray(mixed),
        in_proj_z=jnp.asarray(z),
        in_proj_a=jnp.asarray(a),
        in_proj_b=jnp.asarray(b),
        conv1d=weights.conv[layer].T,
        a_log=weights.a_log[layer],
        dt_bias=weights.dt_bias[layer],
        norm=weights.norm[layer],
        out_proj=jnp.zeros((1, sizes.values)),
    )


def products(weights: GdnWeights, layer: int, x: Activation) -> jax.Array:
    """float32 [M, 2 Hv]: a, then b."""
    return normed(x) @ weights.ab[layer].astype(jnp.float32).T


def engine_norm(weights: DeltaNetWeights, out: jax.Array, z: jax.Array) -> jax.Array:
    """The engine's gated norm: out [..., Hv, dv], z [..., Hv dv] -> [..., Hv dv]."""
    return gated_rms_norm(out, z.reshape(out.shape), weights.norm, EPS).reshape(z.shape)
