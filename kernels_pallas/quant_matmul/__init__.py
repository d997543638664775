"""Weight-only quantised products of 1 to 16 rows, with the norm before and the epilogue after fused in.

A product's input is an `Activation` (its norm is folded in, see arrays.py), its matrix a layer of a `PackedMatrix`; the
layer's index is an operand, int32 [1], because indexing the stack outside would copy the layer. Three epilogues:
`project` (plain), `project_gated` (SiLU product), `project_residual` (adds to the residual in place and makes the next
product's input). Knows nothing of what a matrix is for. Invariant: a row's bits depend on that row alone, not on M
or on its neighbours.

`ahead` names parts of matrices that the device will read soon: they are asked into the L2 cache while this product's
last loads arrive. It changes no value; the reference has no use for it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.typing import DTypeLike

from kernels_pallas import packing
from kernels_pallas.arrays import Activation, Ahead, PackedMatrix
from kernels_pallas.dispatch import Impl, choose
from kernels_pallas.quant_matmul import reference, triton
from kernels_pallas.quant_matmul.reference import start, unpack_matrix

__all__ = [
    "Ahead",
    "activation_dtype",
    "packing",
    "project",
    "project_gated",
    "project_residual",
    "start",
    "unpack_matrix",
]

MAX_ROWS = 16


def activation_dtype(format: str) -> np.dtype[np.generic]:
    """The dtype of an activation that a matrix of `format` reads: bfloat16 for bf16, else float16."""
    return np.dtype(ml_dtypes.bfloat16 if format == "bf16" else np.float16)


def _check(x: Activation, matrix: PackedMatrix, layer: jax.Array) -> None:
    rows, width = x.values.shape
    if width != matrix.k:
        raise ValueError(f"the input has {width} columns and the matrix {matrix.k}")
    if not 1 <= rows <= MAX_ROWS:
        raise ValueError(f"{rows} rows: these kernels take 1 to {MAX_ROWS}")
    wanted = activation_dtype(matrix.format)
    if x.values.dtype != wanted:
        raise ValueError(f"a {matrix.format} matrix reads {wanted} activations, not {x.values.dtype}")
    if layer.shape != (1,) or layer.dtype != jnp.int32:
        raise ValueError(f"layer is int32 [1], not {layer.dtype} {list(layer.shape)}")


def project(
    x: Activation,
    matrix: PackedMatrix,
    layer: jax.Array,
    *,
    out_dtype: DTypeLike = jnp.float32,
    ahead: tuple[Ahead, ...] = (),
    impl: Impl = "auto",
) -> jax.Array:
    """x @ matrix[layer].T in `out_dtype`, [M, N].

    Raises:
        ValueError: shapes or dtypes that do not fit, an `impl` that does not exist.
    """
    _check(x, matrix, layer)
    run = choose(impl, {"reference": reference.project, "triton": triton.project})
    return run(x, matrix, layer, out_dtype=out_dtype, ahead=ahead)


def project_gated(
    x: Activation,
    matrix: PackedMatrix,
    layer: jax.Array,
    *,
    out_dtype: DTypeLike,
    shift: int,
    ahead: tuple[Ahead, ...] = (),
    impl: Impl = "auto",
) -> Activation:
    """silu(gate) * up * 2**-shift, values [M, N/2]; the matrix holds all gate rows, then all up rows.

    Raises:
        ValueError: shapes or dtypes that do not fit (N is a multiple of 32), an `impl` that does not exist.
    """
    _check(x, matrix, layer)
    if matrix.n % 32:
        raise ValueError(f"gate and up rows are tiles of 16 each: N = {matrix.n} is no multiple of 32")
    run = choose(impl, {"reference": reference.project_gated, "triton": triton.project_gated})
    return run(x, matrix, layer, out_dtype=out_dtype, shift=shift, ahead=ahead)


def project_residual(
    x: Activation,
    matrix: PackedMatrix,
    layer: jax.Array,
    residual: jax.Array,
    gains: jax.Array,
    gain_index: jax.Array,
    *,
    out_dtype: DTypeLike,
    shift: int,
    eps: float,
    ahead: tuple[Ahead, ...] = (),
    impl: Impl = "auto",
) -> tuple[jax.Array, Activation]:
    """Add the product to `residual` (float32 [M, N], in place) and make the next input: residual * gain * 2**-shift.

    gains float32 [G, N] with gain_index int32 [1]. Returns (residual, Activation with squares [M, N/16]).

    Raises:
        ValueError: shapes or dtypes that do not fit, an `impl` that does not exist.
    """
    _check(x, matrix, layer)
    if residual.shape != (x.values.shape[0], matrix.n) or gains.shape[1:] != (matrix.n,):
        raise ValueError(
            f"residual {residual.shape} or gains {gains.shape} do not fit {x.values.shape[0]} x {matrix.n}"
        )
    run = choose(impl, {"reference": reference.project_residual, "triton": triton.project_residual})
    return run(x, matrix, layer, residual, gains, gain_index, out_dtype=out_dtype, shift=shift, eps=eps, ahead=ahead)
