"""The text trunk over serving state: a chunk of one lane's prompt, or one token each of several lanes.

Pure: state goes in and comes out. Knows slots and page tables as arrays, nothing of requests. Invariant: a row's bits
depend on its own tokens and on the form that each of them takes, not on the other rows, the slot, the pages or T.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ninfer.engine.model import attention, delta_net
from ninfer.engine.model.config import CONV_TAPS, TextConfig
from ninfer.engine.model.head import embed
from ninfer.engine.model.mlp import mlp
from ninfer.engine.model.norms import rms_norm
from ninfer.engine.model.rotary import rotary_tables, text_positions
from ninfer.engine.model.state import TextState
from ninfer.engine.model.weights import AttentionWeights, DeltaNetWeights, TextWeights
from ninfer.engine.types import PAGE_TOKENS

NOWHERE = 2**31 - 1
"""A slot or page beyond any pool: reads are clamped, writes are dropped. Padding lives there."""


class TrunkOutput(NamedTuple):
    """Rows of the trunk. What a caller does not use is not computed: XLA drops it."""

    normed: jax.Array
    """[R, H] after the final norm"""
    layers: tuple[jax.Array, ...]
    """Residual stream [R, H]: the embeddings, then after each layer (the last one before the final norm)"""


class PromptChunk(NamedTuple):
    """Where a chunk of one lane's prompt stands. Scalars are int32."""

    slot: jax.Array
    pages: jax.Array
    """int32 [P], the lane's table from position 0"""
    start: jax.Array
    """Position of the first token; at 0 the slot counts as empty"""
    length: jax.Array
    """Real tokens, at least 1; the rest is padding up to a multiple of 64"""


class Rows(NamedTuple):
    """Where one token each of R lanes stands; slots are distinct."""

    slots: jax.Array
    """int32 [R]; `NOWHERE` for padding"""
    pages: jax.Array
    """int32 [R, P]"""
    positions: jax.Array
    """int32 [R]"""


def run_prompt(
    config: TextConfig, weights: TextWeights, state: TextState, chunk: PromptChunk, tokens: jax.Array
) -> tuple[TrunkOutput, TextState]:
    """Feed int32 tokens [T] (T a multiple of 64) in the chunked form. May start anywhere; bits hold on the 64 grid."""
    offsets = jnp.arange(tokens.shape[0])
    positions = chunk.start + offsets
    tables = rotary_tables(config, text_positions(positions))
    real = offsets < chunk.length
    places = jnp.where(real, chunk.pages[positions // PAGE_TOKENS], NOWHERE)
    fresh = chunk.start == 0
    pools = _Pools(state)
    x = embed(weights, tokens)
    stream = [x]
    for layer in weights.layers:
        inner = rms_norm(x, layer.input_norm, config.rms_norm_eps)
        if isinstance(layer.mixer, AttentionWeights):
            rows = attention.project(config, layer.mixer, inner, tables)
            keys, values = pools.write(rows.key, rows.value, places, positions % PAGE_TOKENS)
            mixed = attention.attend_prompt(rows.query, keys, values, chunk.pages, chunk.start, chunk.length)
            x = x + attention.finish(layer.mixer, mixed, rows.gate)
        else:
            before, tail = (jnp.where(fresh, 0.0, part) for part in pools.slot(chunk.slot))
            added, after, tail = _delta_net_prompt(config, layer.mixer, inner, before, tail, chunk.length)
            pools.set_slot(chunk.slot, after, tail)
            x = x + added
        x = x + mlp(layer.mlp, rms_norm(x, layer.post_attention_norm, config.rms_norm_eps))
        stream.append(x)
    return TrunkOutput(rms_norm(x, weights.norm, config.rms_norm_eps), tuple(stream)), pools.state()


def run_rows(
    config: TextConfig, weights: TextWeights, state: TextState, rows: Rows, tokens: jax.Array
) -> tuple[TrunkOutput, TextState]:
    """Feed one int32 token [R] per lane in the recurrent form. A row whose slot is `NOWHERE` stores nothing."""
    tables = rotary_tables(config, text_positions(rows.positions))
    places = jnp.take_along_axis(rows.pages, rows.positions[:, None] // PAGE_TOKENS, axis=1)[:, 0]
    places = jnp.where(rows.slots == NOWHERE, NOWHERE, places)
    pools = _Pools(state)
    x = embed(weights, tokens)
    stream = [x]
    for layer in weights.layers:
        inner = rms_norm(x, layer.input_norm, config.rms_norm_eps)
        if isinstance(layer.mixer, AttentionWeights):
            own = attention.project(config, layer.mixer, inner, tables)
            keys, values = pools.write(own.key, own.value, places, rows.positions % PAGE_TOKENS)
            mixed = attention.attend_rows(own.query, keys, values, rows.pages, rows.positions)
            x = x + attention.finish(layer.mixer, mixed, own.gate)
        else:
            gates = delta_net.project(layer.mixer, inner)
            before, tail = pools.slot(rows.slots)
            mixed_in = gates.mixed[:, None, :]
            heads = delta_net.split_heads(config, delta_net.convolve(layer.mixer, mixed_in, tail)[:, 0])
            out, after = delta_net.recurrent_step(before, heads, gates.log_decay, gates.beta)
            tail = delta_net.join_tail(mixed_in, tail)[:, 1:].swapaxes(-1, -2)
            pools.set_slot(rows.slots, after, tail)
            x = x + delta_net.finish(config, layer.mixer, out, gates.z)
        x = x + mlp(layer.mlp, rms_norm(x, layer.post_attention_norm, config.rms_norm_eps))
        stream.append(x)
    return TrunkOutput(rms_norm(x, weights.norm, config.rms_norm_eps), tuple(stream)), pools.state()


def _delta_net_prompt(
    config: TextConfig,
    weights: DeltaNetWeights,
    x: jax.Array,
    before: jax.Array,
    tail: jax.Array,
    count: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """x [T, H] after state [Hv, dk, dv] and tail [C, 3] -> mixer output [T, H], state and tail after `count` rows."""
    gates = delta_net.project(weights, x)
    heads = delta_net.split_heads(config, delta_net.convolve(weights, gates.mixed, tail))
    out, after = delta_net.delta_rule_prompt(before, heads, gates.log_decay, gates.beta, count)
    joined = delta_net.join_tail(gates.mixed, tail)
    tail = lax.dynamic_slice_in_dim(joined, count, CONV_TAPS - 1).swapaxes(0, 1)
    return delta_net.finish(config, weights, out, gates.z), after, tail


class _Pools:
    """The state while a trunk walks down the layers: each kind of layer takes its next arrays and leaves new ones."""

    def __init__(self, state: TextState) -> None:
        self._old = state
        self._keys: list[jax.Array] = []
        self._values: list[jax.Array] = []
        self._recurrent: list[jax.Array] = []
        self._conv: list[jax.Array] = []

    def write(
        self, key: jax.Array, value: jax.Array, pages: jax.Array, offsets: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        layer = len(self._keys)
        self._keys.append(attention.write_pool(self._old.keys[layer], key, pages, offsets))
        self._values.append(attention.write_pool(self._old.values[layer], value, pages, offsets))
        return self._keys[-1], self._values[-1]

    def slot(self, slots: jax.Array) -> tuple[jax.Array, jax.Array]:
        layer = len(self._recurrent)
        return self._old.recurrent[layer][slots], self._old.conv[layer][slots]

    def set_slot(self, slots: jax.Array, recurrent: jax.Array, conv: jax.Array) -> None:
        layer = len(self._recurrent)
        self._recurrent.append(self._old.recurrent[layer].at[slots].set(recurrent, mode="drop"))
        self._conv.append(self._old.conv[layer].at[slots].set(conv.astype(jnp.float32), mode="drop"))

    def state(self) -> TextState:
        return TextState(
            keys=tuple(self._keys),
            values=tuple(self._values),
            recurrent=tuple(self._recurrent),
            conv=tuple(self._conv),
        )
