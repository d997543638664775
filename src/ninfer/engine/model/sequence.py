"""The text model over whole sequences from a zero state: for training and for judging the serving forms.

    hidden = sequence_hidden(config, weights, tokens)         # [B, T, H] after the final norm
    scores = sequence_logits(config, weights, tokens)         # [B, T, V]
    ahead = mtp_sequence_logits(config, weights, hidden, next_tokens)

Plain functions of arrays, differentiable in the weights, any T; `remat=True` keeps only each layer's input for the
backward pass. Not bit-equal to the serving forms, but the same mathematics.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp

from ninfer.engine.model import attention, delta_net
from ninfer.engine.model.config import CONV_TAPS, TextConfig
from ninfer.engine.model.delta_net import CHUNK_TOKENS
from ninfer.engine.model.head import embed, logits
from ninfer.engine.model.mlp import mlp
from ninfer.engine.model.mtp import join_inputs
from ninfer.engine.model.norms import rms_norm
from ninfer.engine.model.rotary import rotary_tables, text_positions
from ninfer.engine.model.weights import AttentionWeights, DeltaNetWeights, LayerWeights, TextWeights

_Step: TypeAlias = Callable[[LayerWeights, jax.Array], jax.Array]


def sequence_hidden(config: TextConfig, weights: TextWeights, tokens: jax.Array, *, remat: bool = False) -> jax.Array:
    """int32 tokens [B, T] at positions 0 .. T - 1 -> [B, T, H] after the final norm."""
    return rms_norm(_stream(config, weights, tokens, remat=remat)[-1], weights.norm, config.rms_norm_eps)


def sequence_layers(config: TextConfig, weights: TextWeights, tokens: jax.Array) -> tuple[jax.Array, ...]:
    """The residual stream [B, T, H]: the embeddings, then after each layer (the last one before the final norm)."""
    return _stream(config, weights, tokens, remat=False)


def sequence_logits(config: TextConfig, weights: TextWeights, tokens: jax.Array, *, remat: bool = False) -> jax.Array:
    """int32 tokens [B, T] -> [B, T, V]; row t predicts token t + 1."""
    return logits(weights, sequence_hidden(config, weights, tokens, remat=remat))


def mtp_sequence_logits(
    config: TextConfig, weights: TextWeights, hidden: jax.Array, next_tokens: jax.Array, *, remat: bool = False
) -> jax.Array:
    """Logits [B, T, V] of the MTP head; row t predicts token t + 2.

    hidden [B, T, H] after the final norm; next_tokens int32 [B, T] holds token t + 1 at t. Rotary position is t + 1.
    """
    if weights.mtp is None:
        raise ValueError("the weights have no mtp head")
    x = join_inputs(config, weights.mtp, hidden, embed(weights, next_tokens))
    positions = jnp.broadcast_to(jnp.arange(1, hidden.shape[1] + 1), hidden.shape[:2])
    step = _layer_function(config, positions, remat=remat)
    return logits(weights, rms_norm(step(weights.mtp.layer, x), weights.mtp.norm, config.rms_norm_eps))


def _stream(config: TextConfig, weights: TextWeights, tokens: jax.Array, *, remat: bool) -> tuple[jax.Array, ...]:
    step = _layer_function(config, jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape), remat=remat)
    stream = [embed(weights, tokens)]
    for layer in weights.layers:
        stream.append(step(layer, stream[-1]))
    return tuple(stream)


def _layer_function(config: TextConfig, positions: jax.Array, *, remat: bool) -> _Step:
    tables = rotary_tables(config, text_positions(positions))

    def step(layer: LayerWeights, x: jax.Array) -> jax.Array:
        return _layer(config, layer, x, tables)

    return jax.checkpoint(step) if remat else step


def _layer(config: TextConfig, layer: LayerWeights, x: jax.Array, tables: tuple[jax.Array, jax.Array]) -> jax.Array:
    inner = rms_norm(x, layer.input_norm, config.rms_norm_eps)
    if isinstance(layer.mixer, AttentionWeights):
        rows = attention.project(config, layer.mixer, inner, tables)
        x = x + attention.finish(layer.mixer, attention.attend_sequence(rows), rows.gate)
    else:
        x = x + _delta_net(config, layer.mixer, inner)
    return x + mlp(layer.mlp, rms_norm(x, layer.post_attention_norm, config.rms_norm_eps))


def _delta_net(config: TextConfig, weights: DeltaNetWeights, x: jax.Array) -> jax.Array:
    batch, tokens, _ = x.shape
    gates = delta_net.project(weights, x)
    tail = jnp.zeros((batch, config.conv_channels, CONV_TAPS - 1), x.dtype)
    heads = delta_net.split_heads(config, delta_net.convolve(weights, gates.mixed, tail))
    # Rows of zeros behind the end write nothing and decay nothing.
    inputs = jax.tree.map(
        lambda part: jnp.pad(part, [(0, 0), (0, -tokens % CHUNK_TOKENS), *[(0, 0)] * (part.ndim - 2)]),
        (heads, gates.log_decay, gates.beta),
    )
    state = jnp.zeros(
        (batch, config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim), jnp.float32
    )
    out, _ = delta_net.delta_rule_sequence(state, *inputs)
    return delta_net.finish(config, weights, out[:, :tokens], gates.z)
