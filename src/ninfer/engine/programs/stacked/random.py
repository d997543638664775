"""Stacked weights of random numbers, made on the device: for measurements, which care for bytes and not for sense.

Matrices have entries of about 1 / sqrt(K), so that activations keep their size through all layers and nothing
overflows. Codes are random bits where every code is a number; floats whose bits are not are drawn as normals.
"""

from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from kernels_pallas import packing
from kernels_pallas.arrays import PackedMatrix
from kernels_pallas.gdn_step import GdnWeights
from ninfer.engine.model.config import TextConfig
from ninfer.engine.programs.stacked.weights import MIXERS, MLP, StackedWeights, layers_of, matrix_shapes, weight_name

_ROOT_MEAN_SQUARE: Mapping[str, float] = {
    "fp8_row": 0.55,  # e4m3 of random bits below 2
    "int8_g32": 73.9,
    "q4_g64": 4.64,
    "q5_g64": 9.25,
    "q6_g64": 18.5,
    "nvfp4": 2.93,
}
"""Of the codes that random bits stand for."""

_BELOW_TWO = 0xBFBFBFBF
"""Clears the highest exponent bit of four e4m3 numbers: no NaN is left."""

_E4M3_ONE = 0x3838


def random_stacked(config: TextConfig, formats: Callable[[str], str], seed: int = 0) -> StackedWeights:
    """Random weights of `config`; `formats` tells the format of a matrix by its logical name. Blocks."""
    keys = iter(jax.random.split(jax.random.key(seed), 32))
    delta, attention = layers_of(config, "linear_attention"), layers_of(config, "full_attention")
    every = tuple(range(config.num_layers))
    shapes = matrix_shapes(config)

    def stack(layers: tuple[int, ...], matrices: tuple[str, ...]) -> PackedMatrix:
        names = [weight_name(layers[0], matrix) for matrix in matrices]
        rows = sum(shapes[name][0] for name in names)
        made: PackedMatrix = random_packed(next(keys), formats(names[0]), len(layers), rows, shapes[names[0]][1])
        return made

    def normal(*shape: int, size: float = 1.0, dtype: type = jnp.float32) -> jax.Array:
        return (jax.random.normal(next(keys), shape) * size).astype(dtype)

    (linear, linear_out), (full, full_out) = MIXERS["linear_attention"], MIXERS["full_attention"]
    heads, hidden = config.linear_num_value_heads, config.hidden_size
    return StackedWeights(
        embed=normal(config.vocab_size, hidden, dtype=jnp.bfloat16),
        delta_in=stack(delta, tuple(linear)),
        delta=GdnWeights(
            ab=normal(len(delta), 2 * heads, hidden, size=hidden**-0.5, dtype=jnp.bfloat16),
            conv=normal(len(delta), 4, config.conv_channels, size=0.5),
            a_log=normal(len(delta), heads),
            dt_bias=normal(len(delta), heads),
            norm=jnp.ones((len(delta), config.linear_value_head_dim), jnp.float32),
        ),
        delta_out=stack(delta, (linear_out,)),
        attention_in=stack(attention, tuple(full)),
        query_gains=jnp.ones((len(attention), config.head_dim), jnp.float32),
        key_gains=jnp.ones((len(attention), config.head_dim), jnp.float32),
        attention_out=stack(attention, (full_out,)),
        gate_up=stack(every, MLP),
        down=stack(every, ("mlp.down_proj",)),
        gains=jnp.ones((2 * config.num_layers + 1, hidden), jnp.float32),
        head=random_packed(next(keys), formats("lm_head.weight"), 1, config.vocab_size, hidden),
    )


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def random_packed(key: jax.Array, form: str, layers: int, rows: int, columns: int) -> PackedMatrix:
    """A stack of `layers` random matrices [rows, columns]."""
    planes: dict[str, jax.Array] = {}
    for name, spec in packing.plane_specs(form, rows, columns).items():
        shape = (layers, *spec.shape)
        own = jax.random.fold_in(key, len(planes))
        if name in ("codes", "high"):
            planes[name] = (
                _codes(own, form, shape, columns) if name == "codes" else jax.random.bits(own, shape, spec.dtype)
            )
        else:
            planes[name] = _scales(own, form, name, shape, columns)
    return PackedMatrix(**planes, format=form)


def _codes(key: jax.Array, form: str, shape: tuple[int, ...], columns: int) -> jax.Array:
    if form == "bf16":

        def layer(own: jax.Array) -> jax.Array:  # one by one: float32 normals of a whole stack would not fit
            values = (jax.random.normal(own, (*shape[1:], 2)) * columns**-0.5).astype(jnp.bfloat16)
            return lax.bitcast_convert_type(values, jnp.uint32)

        packed: jax.Array = lax.map(layer, jax.random.split(key, shape[0]))
        return packed
    bits = jax.random.bits(key, shape, jnp.uint32)
    return bits & jnp.uint32(_BELOW_TWO) if form == "fp8_row" else bits


def _scales(key: jax.Array, form: str, name: str, shape: tuple[int, ...], columns: int) -> jax.Array:
    scale = columns**-0.5 / _ROOT_MEAN_SQUARE[form]
    if name == "row_scales":
        return jnp.full(shape, scale, jnp.float32)
    if form == "nvfp4":
        return jnp.full(shape, _E4M3_ONE, jnp.uint16)
    half = lax.bitcast_convert_type(jnp.float16(scale), jnp.uint16).astype(jnp.uint32)
    # Codes reach one further down than up. Without signs their mean would add up, and every row choose the same token.
    signs = jax.random.bits(key, shape, jnp.uint32) & jnp.uint32(0x80008000)
    pairs = jnp.full(shape, half * jnp.uint32(0x10001), jnp.uint32)
    return jnp.bitwise_xor(pairs, signs)
