"""Exponential and its relatives, float32, made of basic operations whose rounding is fixed.

XLA replaces `exp` and `log` by polynomials for some vector widths and leaves others to the C library, which rounds
otherwise; which width a loop gets depends on the batch size (12 lanes for two rows of six heads). Additions,
multiplications and divisions have one rounding everywhere. Errors are about one unit in the last place.
"""

import jax
import jax.numpy as jnp
from jax import lax

from ninfer.engine.model.reduce import rounded

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # the high part times any exponent is exact
_LEAST, _MOST = -87.3, 87.3  # beyond these the result is 0, or stays where it is
_EXP_TERMS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_ATANH_TERMS = tuple(1.0 / odd for odd in (17, 15, 13, 11, 9, 7, 5, 3))


def _horner(x: jax.Array, terms: tuple[float, ...]) -> jax.Array:
    total = jnp.full_like(x, terms[0])
    for term in terms[1:]:
        total = rounded(total * x) + term
    return total


@jax.custom_jvp
def exp(x: jax.Array) -> jax.Array:
    """e ** x for float32 x: 0 below -87.3, not above e ** 87.3, NaN for NaN."""
    bound = jnp.clip(rounded(x), _LEAST, _MOST)
    power = jnp.floor(rounded(bound * _LOG2_E) + 0.5)
    rest = bound - power * _LN2_HIGH - rounded(power * _LN2_LOW)
    near_one = rounded(_horner(rest, _EXP_TERMS) * rounded(rest * rest)) + rest + 1.0
    inverse = lax.bitcast_convert_type((127 - power.astype(jnp.int32)) << 23, jnp.float32)
    # A division because XLA does not compute divisions again for each user of a broadcast result; it is exact here.
    return near_one / jnp.where(x < _LEAST, jnp.inf, inverse)


@exp.defjvp
def _exp_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    value = exp(*primals)
    return value, value * tangents[0]


@jax.custom_jvp
def sigmoid(x: jax.Array) -> jax.Array:
    """1 / (1 + e ** -x), computed in float32, in x's dtype."""
    return (1.0 / (1.0 + exp(-x.astype(jnp.float32)))).astype(x.dtype)


@sigmoid.defjvp
def _sigmoid_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    value = sigmoid(*primals)
    return value, value * (1 - value) * tangents[0]


def silu(x: jax.Array) -> jax.Array:
    """x * sigmoid(x), rounded."""
    return rounded(x * sigmoid(x))


@jax.custom_jvp
def softplus(x: jax.Array) -> jax.Array:
    """log(1 + e ** x) for float32 x."""
    small = exp(-jnp.abs(x))
    # log(1 + y) = 2 atanh(y / (2 + y)), whose argument is at most a third: the series is short.
    ratio = small / (2.0 + small)
    square = rounded(ratio * ratio)
    tail = rounded(rounded(ratio * square) * _horner(square, _ATANH_TERMS))
    return jnp.maximum(x, 0.0) + 2.0 * (ratio + tail)


@softplus.defjvp
def _softplus_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return softplus(*primals), sigmoid(*primals) * tangents[0]
