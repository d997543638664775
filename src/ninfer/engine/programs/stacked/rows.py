"""The trunk of the stacked form for a round of rows: a chain of kernels, with nothing between them.

Each residual is written together with the next product's input, so a norm costs no kernel of its own (see
`kernels_pallas.arrays.Activation`), and each product may ask for what is read after it (reading.py). Layers are
unrolled, so that a whole step is one CUDA graph; a layer's function is traced once for its kind and for the kind of the
layer behind it.
Invariant: a row's bits depend on that row alone.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import attrs
import jax
import jax.numpy as jnp
import numpy as np

from kernels_pallas.arrays import Activation, Ahead, PackedMatrix
from kernels_pallas.dispatch import Impl
from kernels_pallas.gdn_step import GdnState, gdn_step
from kernels_pallas.kv_cache import KvPool
from kernels_pallas.paged_attention import Partials, attend_rows, combine
from kernels_pallas.quant_matmul import activation_dtype, project, project_gated, project_residual, start
from ninfer.engine.model.config import LayerKind, TextConfig
from ninfer.engine.model.rotary import rotary_tables, text_positions
from ninfer.engine.programs.stacked.memory import StackedState
from ninfer.engine.programs.stacked.reading import READING, Place, ReadingPlan, Wish
from ninfer.engine.programs.stacked.weights import StackedWeights

RESIDUAL_SHIFT = 6
"""Residuals enter float16 divided by 64: trained models have a few channels in the thousands."""
PRODUCT_SHIFT = 4
"""The SiLU product enters float16 divided by 16."""


@attrs.frozen(kw_only=True)
class RowKernels:
    """The operations of a round and what they ask for ahead of time; hashable, a static fact of the program."""

    project: Callable[..., jax.Array]
    project_gated: Callable[..., Activation]
    project_residual: Callable[..., tuple[jax.Array, Activation]]
    gdn_step: Callable[..., tuple[Activation, GdnState]]
    attend_rows: Callable[..., tuple[Partials, KvPool]]
    combine: Callable[..., Activation]
    reading: ReadingPlan = READING


@cache
def row_kernels(impl: Impl) -> RowKernels:
    """The operations in the implementation `impl`: the same object each time, so that nothing is traced twice."""
    return RowKernels(
        project=partial(project, impl=impl),
        project_gated=partial(project_gated, impl=impl),
        project_residual=partial(project_residual, impl=impl),
        gdn_step=partial(gdn_step, impl=impl),
        attend_rows=partial(attend_rows, impl=impl),
        combine=partial(combine, impl=impl),
    )


class Rows(NamedTuple):
    """Where one token each of M lanes stands; slots are distinct. Padding has slot and position -1."""

    slots: jax.Array
    """int32 [M]"""
    positions: jax.Array
    """int32 [M]"""
    tables: jax.Array
    """int32 [M, P]"""


class _Stream(NamedTuple):
    """What flows from layer to layer."""

    residual: jax.Array
    """float32 [M, H]"""
    inner: Activation
    """The next product's input"""
    state: StackedState


class _Fixed(NamedTuple):
    """What is the same for all layers of a step."""

    weights: StackedWeights
    rows: Rows
    cos: jax.Array
    sin: jax.Array


class _Numbers(NamedTuple):
    """Which layer it is, int32 [1] each."""

    layer: jax.Array
    own: jax.Array
    """among the layers of its kind"""
    next_own: jax.Array
    """of the layer behind it, among those of that one's kind"""
    middle_gain: jax.Array
    """the norm between mixer and feed-forward"""
    last_gain: jax.Array
    """the norm behind the feed-forward"""


def run_rows(
    config: TextConfig,
    kernels: RowKernels,
    weights: StackedWeights,
    state: StackedState,
    rows: Rows,
    tokens: jax.Array,
) -> tuple[jax.Array, StackedState]:
    """Feed one int32 token [M] per row in the recurrent form: float32 logits [M, V], new state."""
    cos, sin = rotary_tables(config, text_positions(jnp.maximum(rows.positions, 0)))
    kinds = config.layer_types
    residual = weights.embed[tokens].astype(jnp.float32)
    inner = start(
        residual,
        weights.gains,
        number(0),
        out_dtype=activation_dtype(_first_matrix(weights, kinds[0]).format),
        shift=RESIDUAL_SHIFT,
        eps=config.rms_norm_eps,
    )
    stream, fixed = _Stream(residual, inner, state), _Fixed(weights, rows, cos, sin)
    for layer, kind in enumerate(kinds):
        behind = kinds[layer + 1] if layer + 1 < len(kinds) else None
        numbers = _Numbers(
            layer=number(layer),
            own=number(kinds[:layer].count(kind)),
            next_own=number(0 if behind is None else kinds[: layer + 1].count(behind)),
            middle_gain=number(2 * layer + 1),
            last_gain=number(2 * layer + 2),
        )
        stream = _layer(config, kernels, kind, behind, fixed, stream, numbers)
    return kernels.project(stream.inner, weights.head, number(0)), stream.state


def number(value: int) -> jax.Array:
    """An index as kernels take it: a constant of the program, so it costs no kernel."""
    return jnp.asarray(np.array([value], np.int32))


def _first_matrix(weights: StackedWeights, kind: LayerKind | None) -> PackedMatrix:
    """What a layer of `kind` multiplies with first; None is the head."""
    if kind is None:
        return weights.head
    return weights.delta_in if kind == "linear_attention" else weights.attention_in


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _layer(
    config: TextConfig,
    kernels: RowKernels,
    kind: LayerKind,
    behind: LayerKind | None,
    fixed: _Fixed,
    stream: _Stream,
    numbers: _Numbers,
) -> _Stream:
    """A mixer of `kind` and a feed-forward; a layer of kind `behind` follows, or the head."""
    weights, mix = fixed.weights, _delta_net if kind == "linear_attention" else _attention
    out, following = _out_matrix(weights, kind), _first_matrix(weights, behind)
    ask = partial(_parts, _places(weights, kind, behind, numbers))
    reading = kernels.reading
    projected = kernels.project(stream.inner, _first_matrix(weights, kind), numbers.own, ahead=ask(reading.mixer_in))
    mixed, state = mix(config, kernels, fixed, stream, projected, numbers.own)
    add = partial(kernels.project_residual, gains=weights.gains, shift=RESIDUAL_SHIFT, eps=config.rms_norm_eps)
    residual, inner = add(
        mixed,
        out,
        numbers.own,
        stream.residual,
        gain_index=numbers.middle_gain,
        out_dtype=activation_dtype(weights.gate_up.format),
        ahead=ask(reading.mixer_out),
    )
    gated = kernels.project_gated(
        inner,
        weights.gate_up,
        numbers.layer,
        out_dtype=activation_dtype(weights.down.format),
        shift=PRODUCT_SHIFT,
        ahead=ask(reading.gate_up),
    )
    residual, inner = add(
        gated,
        weights.down,
        numbers.layer,
        residual,
        gain_index=numbers.last_gain,
        out_dtype=activation_dtype(following.format),
        ahead=ask(reading.down),
    )
    return _Stream(residual, inner, state)


def _out_matrix(weights: StackedWeights, kind: LayerKind) -> PackedMatrix:
    return weights.delta_out if kind == "linear_attention" else weights.attention_out


def _places(
    weights: StackedWeights, kind: LayerKind, behind: LayerKind | None, numbers: _Numbers
) -> dict[Place, tuple[PackedMatrix, jax.Array]]:
    """Matrices that a layer's products may ask for, and their layers."""
    return {
        "mixer_out": (_out_matrix(weights, kind), numbers.own),
        "gate_up": (weights.gate_up, numbers.layer),
        "down": (weights.down, numbers.layer),
        "mixer_in": (_first_matrix(weights, behind), numbers.next_own),
    }


def _parts(places: dict[Place, tuple[PackedMatrix, jax.Array]], wishes: tuple[Wish, ...]) -> tuple[Ahead, ...]:
    return tuple(Ahead(*places[wish.place], wish.size_bytes) for wish in wishes)


def _delta_net(
    config: TextConfig,
    kernels: RowKernels,
    fixed: _Fixed,
    stream: _Stream,
    projected: jax.Array,
    own: jax.Array,
) -> tuple[Activation, StackedState]:
    mixed, delta = kernels.gdn_step(
        projected,
        stream.inner,
        stream.state.delta,
        fixed.weights.delta,
        own,
        fixed.rows.slots,
        fixed.rows.positions,
        eps=config.rms_norm_eps,
        out_dtype=activation_dtype(fixed.weights.delta_out.format),
    )
    return mixed, stream.state.with_parts(delta=delta)


def _attention(
    config: TextConfig,
    kernels: RowKernels,
    fixed: _Fixed,
    stream: _Stream,
    projected: jax.Array,
    own: jax.Array,
) -> tuple[Activation, StackedState]:
    weights, rows = fixed.weights, fixed.rows
    partials, pool = kernels.attend_rows(
        projected,
        stream.state.pool,
        (weights.query_gains, weights.key_gains),
        own,
        rows.tables,
        rows.positions,
        fixed.cos,
        fixed.sin,
        eps=config.rms_norm_eps,
    )
    mixed = kernels.combine(partials, projected, out_dtype=activation_dtype(weights.attention_out.format))
    return mixed, stream.state.with_parts(pool=pool)
