"""The text trunk over serving state: a chunk of one lane's prompt, or one token each of several lanes.

Pure: state goes in and comes out. Knows slots and page tables as arrays, nothing of requests. Invariant: a row's bits
depend on its own tokens and on the form that each of them takes, not on the other rows, the slot, the pages or T.
A layer is a function of its own under `jax.jit`: it is traced once for all layers that are alike, and XLA puts it in
place of each call, so that what it compiles is the same.
"""

from functools import partial
from typing import NamedTuple, TypeAlias

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
from ninfer.engine.model.weights import AttentionWeights, DeltaNetWeights, LayerWeights, TextWeights
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
    pools = _Pools(state)
    x = embed(weights, tokens)
    stream = [x]
    for layer in weights.layers:
        if isinstance(layer.mixer, AttentionWeights):
            x, *kept = _attention_prompt(
                config, layer, x, tables, pools.paged(), chunk, places, positions % PAGE_TOKENS
            )
            pools.keep_paged(*kept)
        else:
            x, *kept = _delta_net_prompt(config, layer, x, pools.slotted(), chunk)
            pools.keep_slotted(*kept)
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
        if isinstance(layer.mixer, AttentionWeights):
            x, *kept = _attention_rows(config, layer, x, tables, pools.paged(), rows, places)
            pools.keep_paged(*kept)
        else:
            x, *kept = _delta_net_rows(config, layer, x, pools.slotted(), rows)
            pools.keep_slotted(*kept)
        stream.append(x)
    return TrunkOutput(rms_norm(x, weights.norm, config.rms_norm_eps), tuple(stream)), pools.state()


_Pair: TypeAlias = tuple[jax.Array, jax.Array]
_Layer: TypeAlias = tuple[jax.Array, jax.Array, jax.Array]
"""The residual stream after a layer, and the two arrays that the layer remembers."""


@partial(jax.jit, static_argnums=0)
def _attention_prompt(
    config: TextConfig,
    layer: LayerWeights,
    x: jax.Array,
    tables: _Pair,
    pools: _Pair,
    chunk: PromptChunk,
    places: jax.Array,
    offsets: jax.Array,
) -> _Layer:
    """A layer of attention over x [T, H]; its keys and values go to `places` and `offsets` [T] of the pools."""
    assert isinstance(layer.mixer, AttentionWeights)
    own = attention.project(config, layer.mixer, _normed(config, layer, x), tables)
    keys, values = _written(pools, own, places, offsets)
    mixed = attention.attend_prompt(own.query, keys, values, chunk.pages, chunk.start, chunk.length)
    return _fed_forward(config, layer, x + attention.finish(layer.mixer, mixed, own.gate)), keys, values


@partial(jax.jit, static_argnums=0)
def _attention_rows(
    config: TextConfig,
    layer: LayerWeights,
    x: jax.Array,
    tables: _Pair,
    pools: _Pair,
    rows: Rows,
    places: jax.Array,
) -> _Layer:
    """A layer of attention over x [R, H], one row a lane."""
    assert isinstance(layer.mixer, AttentionWeights)
    own = attention.project(config, layer.mixer, _normed(config, layer, x), tables)
    keys, values = _written(pools, own, places, rows.positions % PAGE_TOKENS)
    mixed = attention.attend_rows(own.query, keys, values, rows.pages, rows.positions)
    return _fed_forward(config, layer, x + attention.finish(layer.mixer, mixed, own.gate)), keys, values


@partial(jax.jit, static_argnums=0)
def _delta_net_prompt(
    config: TextConfig, layer: LayerWeights, x: jax.Array, pools: _Pair, chunk: PromptChunk
) -> _Layer:
    """A layer of the delta net over x [T, H]; its slot takes the state [Hv, dk, dv] and the tail [C, 3] after them."""
    assert isinstance(layer.mixer, DeltaNetWeights)
    gates = delta_net.project(layer.mixer, _normed(config, layer, x))
    before, tail = (jnp.where(chunk.start == 0, 0.0, pool[chunk.slot]) for pool in pools)
    heads = delta_net.split_heads(config, delta_net.convolve(layer.mixer, gates.mixed, tail))
    out, after = delta_net.delta_rule_prompt(before, heads, gates.log_decay, gates.beta, chunk.length)
    joined = delta_net.join_tail(gates.mixed, tail)
    tail = lax.dynamic_slice_in_dim(joined, chunk.length, CONV_TAPS - 1).swapaxes(0, 1)
    x = _fed_forward(config, layer, x + delta_net.finish(config, layer.mixer, out, gates.z))
    return x, *_set_slots(pools, chunk.slot, after, tail)


@partial(jax.jit, static_argnums=0)
def _delta_net_rows(config: TextConfig, layer: LayerWeights, x: jax.Array, pools: _Pair, rows: Rows) -> _Layer:
    """A layer of the delta net over x [R, H], one row a lane."""
    assert isinstance(layer.mixer, DeltaNetWeights)
    gates = delta_net.project(layer.mixer, _normed(config, layer, x))
    before, tail = (pool[rows.slots] for pool in pools)
    mixed_in = gates.mixed[:, None, :]
    heads = delta_net.split_heads(config, delta_net.convolve(layer.mixer, mixed_in, tail)[:, 0])
    out, after = delta_net.recurrent_step(before, heads, gates.log_decay, gates.beta)
    tail = delta_net.join_tail(mixed_in, tail)[:, 1:].swapaxes(-1, -2)
    x = _fed_forward(config, layer, x + delta_net.finish(config, layer.mixer, out, gates.z))
    return x, *_set_slots(pools, rows.slots, after, tail)


def _normed(config: TextConfig, layer: LayerWeights, x: jax.Array) -> jax.Array:
    return rms_norm(x, layer.input_norm, config.rms_norm_eps)


def _fed_forward(config: TextConfig, layer: LayerWeights, x: jax.Array) -> jax.Array:
    return x + mlp(layer.mlp, rms_norm(x, layer.post_attention_norm, config.rms_norm_eps))


def _written(pools: _Pair, own: attention.Projected, pages: jax.Array, offsets: jax.Array) -> _Pair:
    keys, values = pools
    return (
        attention.write_pool(keys, own.key, pages, offsets),
        attention.write_pool(values, own.value, pages, offsets),
    )


def _set_slots(pools: _Pair, slots: jax.Array, recurrent: jax.Array, conv: jax.Array) -> _Pair:
    return (
        pools[0].at[slots].set(recurrent, mode="drop"),
        pools[1].at[slots].set(conv.astype(jnp.float32), mode="drop"),
    )


class _Pools:
    """The state while a trunk walks down the layers: each kind of layer takes its next arrays and leaves new ones."""

    def __init__(self, state: TextState) -> None:
        self._old = state
        self._keys: list[jax.Array] = []
        self._values: list[jax.Array] = []
        self._recurrent: list[jax.Array] = []
        self._conv: list[jax.Array] = []

    def paged(self) -> _Pair:
        layer = len(self._keys)
        return self._old.keys[layer], self._old.values[layer]

    def keep_paged(self, keys: jax.Array, values: jax.Array) -> None:
        self._keys.append(keys)
        self._values.append(values)

    def slotted(self) -> _Pair:
        layer = len(self._recurrent)
        return self._old.recurrent[layer], self._old.conv[layer]

    def keep_slotted(self, recurrent: jax.Array, conv: jax.Array) -> None:
        self._recurrent.append(recurrent)
        self._conv.append(conv)

    def state(self) -> TextState:
        return TextState(
            keys=tuple(self._keys),
            values=tuple(self._values),
            recurrent=tuple(self._recurrent),
            conv=tuple(self._conv),
        )
