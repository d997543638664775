"""The trunk of the stacked form for a chunk of one lane's prompt.

Layers are looped over by their repeating pattern (three delta nets and one attention in this family), since a chunk
runs for long and compiling every layer does too.
Invariant: a row's bits depend on its lane's tokens up to it, not on the chunk's length. So every sum over more than one
number is a kernel's, which adds in one order however many rows there are; XLA, which would choose by the number of
rows, only does what concerns single elements. Chunks start on the 64-token grid.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kernels_pallas.arrays import PackedMatrix
from kernels_pallas.chunk_attention import DEFAULT_SPLIT_WORKSPACE_BYTES, attend_chunk
from kernels_pallas.dispatch import Impl
from kernels_pallas.gdn_chunk import gdn_chunk
from kernels_pallas.kv_cache import append_chunk
from kernels_pallas.prefill_matmul import packed_matmul
from kernels_pallas.prompt_rows import gates, heads, normalise
from kernels_pallas.quant_matmul import activation_dtype
from ninfer.engine.model.config import LayerKind, TextConfig
from ninfer.engine.model.rotary import rotary_tables, text_positions
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
            residual, state = mix(config, impl, weights, state, fixed, residual, layer, own[None])
            residual = _mlp(config, impl, weights, residual, layer)
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


def _normed(
    config: TextConfig, impl: Impl, weights: StackedWeights, residual: jax.Array, gain: jax.Array, matrix: PackedMatrix
) -> jax.Array:
    """[T, H] in the type of the activations of `matrix`; gain: int32 number of the norm's gains."""
    dtype = activation_dtype(matrix.format)
    return normalise(residual, weights.gains, gain[None], eps=config.rms_norm_eps, out_dtype=dtype, impl=impl)


# Jitted, what a pattern has several times is traced and lowered once: half of the 4 s that lowering a chunk took.
@partial(jax.jit, static_argnums=(0, 1))
def _delta_net(
    config: TextConfig,
    impl: Impl,
    weights: StackedWeights,
    state: StackedState,
    fixed: _Fixed,
    residual: jax.Array,
    layer: jax.Array,
    own: jax.Array,
) -> tuple[jax.Array, StackedState]:
    """The mixer of `layer`, number `own` (int32 [1]) of the delta nets: residual with its output added."""
    inner = _normed(config, impl, weights, residual, 2 * layer, weights.delta_in)
    projected = packed_matmul(inner, weights.delta_in, own, impl=impl)
    scores = gates(inner, weights.delta.ab, own, impl=impl)
    mixed, delta = gdn_chunk(
        projected,
        scores,
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
    residual = packed_matmul(mixed, weights.delta_out, own, epilogue="residual_add", residual=residual, impl=impl)
    return residual, state.with_parts(delta=delta)


def _attention(
    config: TextConfig,
    impl: Impl,
    weights: StackedWeights,
    state: StackedState,
    fixed: _Fixed,
    residual: jax.Array,
    layer: jax.Array,
    own: jax.Array,
) -> tuple[jax.Array, StackedState]:
    """The mixer of `layer`, number `own` (int32 [1]) of the attention layers: residual with its output added."""
    chunk, dtype = fixed.chunk, activation_dtype(weights.attention_out.format)
    inner = _normed(config, impl, weights, residual, 2 * layer, weights.attention_in)
    projected = packed_matmul(inner, weights.attention_in, own, impl=impl)
    rows = heads(
        projected,
        weights.query_gains,
        weights.key_gains,
        own,
        fixed.tables,
        groups=config.num_key_value_heads,
        eps=config.rms_norm_eps,
        out_dtype=dtype,
        impl=impl,
    )
    pool = append_chunk(rows.key, rows.value, state.pool, own, chunk.pages, chunk.start, chunk.length, impl=impl)
    attended = attend_chunk(
        rows.query,
        pool,
        own,
        chunk.pages,
        chunk.start,
        chunk.length,
        split_workspace_bytes=fixed.split_workspace_bytes,
        impl=impl,
    )
    tokens, queries, width = attended.shape
    gate = projected[:, : 2 * queries * width].reshape(tokens, queries, 2, width)[:, :, 1].astype(jnp.float32)
    mixed = (attended.astype(jnp.float32) * jax.nn.sigmoid(gate)).reshape(tokens, queries * width)
    residual = packed_matmul(mixed, weights.attention_out, own, epilogue="residual_add", residual=residual, impl=impl)
    return residual, state.with_parts(pool=pool)


@partial(jax.jit, static_argnums=(0, 1))
def _mlp(config: TextConfig, impl: Impl, weights: StackedWeights, residual: jax.Array, layer: jax.Array) -> jax.Array:
    """The feed-forward of `layer` added."""
    inner = _normed(config, impl, weights, residual, 2 * layer + 1, weights.gate_up)
    gated = packed_matmul(
        inner,
        weights.gate_up,
        layer[None],
        epilogue="silu_product",
        out_dtype=activation_dtype(weights.down.format),
        shift=PRODUCT_SHIFT,
        impl=impl,
    )
    return packed_matmul(
        gated,
        weights.down,
        layer[None],
        epilogue="residual_add",
        residual=residual,
        shift=PRODUCT_SHIFT,
        impl=impl,
    )
