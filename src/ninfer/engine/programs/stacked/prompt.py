"""The trunk of the stacked form for a chunk of one lane's prompt.

Products of many rows are bound by arithmetic, so each matrix is first written out as plain numbers, in scratch memory,
and then multiplied by the tensor cores. Layers are looped over by their repeating pattern (three delta nets and one
attention in this family), since a chunk runs for long and compiling every layer does too.
Invariant: a row's bits depend on its lane's tokens up to it, not on the chunk's length: products have fixed tiles, and
chunks start on the 64-token grid.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kernels_pallas.arrays import PackedMatrix
from kernels_pallas.chunk_attention import DEFAULT_SPLIT_WORKSPACE_BYTES, attend_chunk
from kernels_pallas.dispatch import Impl
from kernels_pallas.gdn_chunk import gdn_chunk
from kernels_pallas.kv_cache import append_chunk
from kernels_pallas.prefill_matmul import dequantise, matmul
from kernels_pallas.quant_matmul import activation_dtype
from ninfer.engine.model.config import LayerKind, TextConfig
from ninfer.engine.model.rotary import rotary_tables, rotate, text_positions
from ninfer.engine.programs.stacked.memory import StackedState
from ninfer.engine.programs.stacked.rows import PRODUCT_SHIFT
from ninfer.engine.programs.stacked.weights import StackedWeights


class Chunk(NamedTuple):
    """Where a chunk of one lane's prompt stands. Scalars are int32."""

    slot: jax.Array
    pages: jax.Array
    """int32 [P], the lane's table from position 0"""
    start: jax.Array
    """Position of the first token, a multiple of 64; at 0 the slot counts as empty"""
    length: jax.Array
    """Real tokens, at least 1"""


class _Fixed(NamedTuple):
    """What is the same for all layers."""

    chunk: Chunk
    tables: tuple[jax.Array, jax.Array]
    split_workspace_bytes: int


def run_chunk(
    config: TextConfig,
    impl: Impl,
    weights: StackedWeights,
    state: StackedState,
    chunk: Chunk,
    tokens: jax.Array,
    split_workspace_bytes: int = DEFAULT_SPLIT_WORKSPACE_BYTES,
) -> tuple[jax.Array, StackedState]:
    """Feed int32 tokens [T] (T a multiple of 64) in the chunked form: residual float32 [T, H] after the last layer."""
    positions = chunk.start + jnp.arange(tokens.shape[0])
    fixed = _Fixed(chunk, rotary_tables(config, text_positions(positions)), split_workspace_bytes)
    pattern = repeating_pattern(config.layer_types)
    own_per_turn = {kind: pattern.count(kind) for kind in ("linear_attention", "full_attention")}

    def turn(index: jax.Array, carry: tuple[jax.Array, StackedState]) -> tuple[jax.Array, StackedState]:
        residual, state = carry
        for place, kind in enumerate(pattern):
            layer = index * len(pattern) + place
            own = index * own_per_turn[kind] + pattern[:place].count(kind)
            mix = _delta_net if kind == "linear_attention" else _attention
            inner = _normed(config, residual, weights.gains[2 * layer])
            residual, state = mix(config, impl, weights, state, fixed, residual, inner, own[None])
            inner = _normed(config, residual, weights.gains[2 * layer + 1])
            residual = _mlp(impl, weights, residual, inner, layer[None])
        return residual, state

    residual = weights.embed[tokens].astype(jnp.float32)
    done: tuple[jax.Array, StackedState] = lax.fori_loop(0, config.num_layers // len(pattern), turn, (residual, state))
    return done


def repeating_pattern(kinds: tuple[LayerKind, ...]) -> tuple[LayerKind, ...]:
    """The shortest beginning of `kinds` that gives all of it by repetition."""
    for length in range(1, len(kinds)):
        if len(kinds) % length == 0 and kinds == kinds[:length] * (len(kinds) // length):
            return kinds[:length]
    return kinds


def _normed(config: TextConfig, residual: jax.Array, gain: jax.Array) -> jax.Array:
    """float32 [T, H]; gain [H] is 1 + weight."""
    mean_square = jnp.mean(jnp.square(residual), axis=-1, keepdims=True)
    return residual * lax.rsqrt(mean_square + config.rms_norm_eps) * gain


def _times(
    impl: Impl, x: jax.Array, matrix: PackedMatrix, layer: jax.Array, *, out_dtype: jnp.dtype | None = None
) -> jax.Array:
    """x [T, K] @ matrix[layer].T, in the activation's dtype unless told."""
    dtype = activation_dtype(matrix.format)
    plain = dequantise(matrix, layer, dtype, impl=impl)
    return matmul(x.astype(dtype), plain, out_dtype=dtype if out_dtype is None else out_dtype, impl=impl)


def _add_times(
    impl: Impl, residual: jax.Array, x: jax.Array, matrix: PackedMatrix, layer: jax.Array, *, shift: int = 0
) -> jax.Array:
    """residual + (x * 2**shift) @ matrix[layer].T, float32 [T, H]."""
    dtype = activation_dtype(matrix.format)
    plain = dequantise(matrix, layer, dtype, impl=impl)
    return matmul(
        x.astype(dtype),
        plain,
        epilogue="residual_add",
        residual=residual,
        out_dtype=jnp.float32,
        shift=shift,
        impl=impl,
    )


def _delta_net(
    config: TextConfig,
    impl: Impl,
    weights: StackedWeights,
    state: StackedState,
    fixed: _Fixed,
    residual: jax.Array,
    inner: jax.Array,
    own: jax.Array,
) -> tuple[jax.Array, StackedState]:
    """Mixer `own` (int32 [1]) of the delta-net layers: residual with its output added."""
    projected = _times(impl, inner, weights.delta_in, own)
    gates = jnp.matmul(
        inner.astype(projected.dtype),
        lax.dynamic_index_in_dim(weights.delta.ab, own[0], keepdims=False).astype(projected.dtype).T,
        preferred_element_type=jnp.float32,
    )
    heads, channels = config.linear_num_value_heads, config.conv_channels
    mixed, delta = gdn_chunk(
        projected[:, :channels],
        projected[:, channels:],
        gates[:, :heads],
        gates[:, heads:],
        state.delta,
        weights.delta,
        own,
        fixed.chunk.slot,
        fixed.chunk.start,
        fixed.chunk.length,
        eps=config.rms_norm_eps,
        out_dtype=activation_dtype(weights.delta_out.format),
        impl=impl,
    )
    state = state.with_parts(delta=delta)
    return _add_times(impl, residual, mixed, weights.delta_out, own), state


def _attention(
    config: TextConfig,
    impl: Impl,
    weights: StackedWeights,
    state: StackedState,
    fixed: _Fixed,
    residual: jax.Array,
    inner: jax.Array,
    own: jax.Array,
) -> tuple[jax.Array, StackedState]:
    """Mixer `own` (int32 [1]) of the attention layers: residual with its output added."""
    heads, groups, width = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    tokens, chunk = inner.shape[0], fixed.chunk
    projected = _times(impl, inner, weights.attention_in, own).astype(jnp.float32)
    gated, key, value = jnp.split(projected, [2 * heads * width, (2 * heads + groups) * width], axis=-1)
    gated = gated.reshape(tokens, heads, 2, width)
    query = rotate(_normed(config, gated[:, :, 0], weights.query_gains[own[0]]), fixed.tables)
    key = rotate(_normed(config, key.reshape(tokens, groups, width), weights.key_gains[own[0]]), fixed.tables)
    value = value.reshape(tokens, groups, width)
    pool = append_chunk(key, value, state.pool, own, chunk.pages, chunk.start, chunk.length, impl=impl)
    dtype = activation_dtype(weights.attention_out.format)
    attended = attend_chunk(
        query.astype(dtype),
        pool,
        own,
        chunk.pages,
        chunk.start,
        chunk.length,
        split_workspace_bytes=fixed.split_workspace_bytes,
        impl=impl,
    )
    mixed = attended.astype(jnp.float32) * jax.nn.sigmoid(gated[:, :, 1])
    state = state.with_parts(pool=pool)
    return _add_times(impl, residual, mixed.reshape(tokens, heads * width), weights.attention_out, own), state


def _mlp(impl: Impl, weights: StackedWeights, residual: jax.Array, inner: jax.Array, layer: jax.Array) -> jax.Array:
    """The feed-forward of `layer` (int32 [1])."""
    dtype = activation_dtype(weights.gate_up.format)
    gated = matmul(
        inner.astype(dtype),
        dequantise(weights.gate_up, layer, dtype, impl=impl),
        epilogue="silu_product",
        out_dtype=activation_dtype(weights.down.format),
        shift=PRODUCT_SHIFT,
        impl=impl,
    )
    return _add_times(impl, residual, gated, weights.down, layer, shift=PRODUCT_SHIFT)
