"""Products and sums whose bits depend on nothing but their own length (architecture, rule 8).

XLA on the CPU picks another algorithm for a product with one row, another order for a reduction whose total size
reaches a few thousand elements, and other borders between kernels for other batch sizes. So a neighbour in the batch
could change a row's bits; these three functions prevent it.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

_LOWEST = -3.38e38
"""Near the lowest finite number of float32 and of bfloat16."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Part:
    """Some outputs of a matrix that several products share because they have the same input."""

    matrix: jax.Array
    """[all outputs, K]"""
    start: int = field(metadata={"static": True})
    width: int = field(metadata={"static": True})


Matrix: TypeAlias = jax.Array | Part
"""[N, K], one row per output."""


def linear(x: jax.Array, weight: Matrix) -> jax.Array:
    """`x @ weight.T`: x [..., K], weight [N, K] -> [..., N], in x's dtype.

    A single row takes XLA's matrix-vector path, which adds in another order than the product: it is padded to two.
    Of parts of one matrix XLA computes the product once.
    """
    if isinstance(weight, Part):
        return lax.slice_in_dim(linear(x, weight.matrix), weight.start, weight.start + weight.width, axis=-1)
    rows = x.reshape(-1, x.shape[-1])
    count = rows.shape[0]
    if count == 1:
        rows = jnp.concatenate([rows, jnp.zeros_like(rows)])
    product = lax.dot_general(rows, weight.astype(x.dtype), (((1,), (1,)), ((), ())))
    return product[:count].reshape(*x.shape[:-1], weight.shape[0])


@jax.custom_jvp
def rounded(x: jax.Array) -> jax.Array:
    """x itself, rounded to its own precision before anything is added to it. Wrap each product that goes into a sum.

    LLVM turns a product and a sum in one kernel into a fused multiply-add, which rounds once; whether they are in one
    kernel depends on the batch size. It cannot do so across a maximum that it cannot remove. (Values below -3.38e38
    are raised to it.)
    """
    return jnp.maximum(x, _LOWEST)


@rounded.defjvp
def _rounded_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return rounded(*primals), tangents[0]


def tree_sum(x: jax.Array, axis: int = -1) -> jax.Array:
    """Sum of x over one axis by halves: x[i] + x[i + n/2], again and again. Differentiable, also in reverse.

    The terms may be products: they are rounded first.
    """
    return _tree_sum(x, axis % x.ndim)


def _halve(x: jax.Array, axis: int) -> jax.Array:
    while (length := x.shape[axis]) > 1:
        if length % 2:
            widths = [(0, int(dim == axis), 0) for dim in range(x.ndim)]
            x = lax.pad(x, jnp.zeros((), x.dtype), widths)
            length += 1
        x = lax.slice_in_dim(x, 0, length // 2, axis=axis) + lax.slice_in_dim(x, length // 2, length, axis=axis)
    return lax.squeeze(x, (axis,))


def _tree_sum(x: jax.Array, axis: int) -> jax.Array:
    @jax.custom_jvp
    def total(x: jax.Array) -> jax.Array:
        return _halve(rounded(x), axis)

    @total.defjvp
    def _derivative(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
        # A tree transposed is a tower of pads; a plain sum transposed is one broadcast.
        return total(*primals), jnp.sum(tangents[0], axis=axis)

    return total(x)
