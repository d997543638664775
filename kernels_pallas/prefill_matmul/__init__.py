"""Products of a prefill chunk: 64 to 8192 rows at once, bound by the tensor cores and not by reading.

The weights come as a plain [N, K] array of the activations' 16-bit type; `dequantise` makes it from a layer of a packed
stack. Three epilogues: plain, added to the float32 residual in place, and the SiLU product of gate and up. Knows
nothing of what a matrix is for. Invariant: a row's bits depend on that row alone, not on how many rows come with it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from kernels_pallas.arrays import PackedMatrix
from kernels_pallas.dispatch import Impl, choose

from . import reference
from .epilogue import EPILOGUES, Epilogue
from .packed_tuning import UNPACK_FROM_TOKENS, packed_tiles_for
from .tuning import tiles_for

__all__ = ["Epilogue", "dequantise", "matmul", "packed_matmul"]


def matmul(
    x: jax.Array,
    w: jax.Array,
    *,
    epilogue: Epilogue = "none",
    residual: jax.Array | None = None,
    out_dtype: DTypeLike | None = None,
    shift: int = 0,
    impl: Impl = "auto",
) -> jax.Array:
    """y = x @ w.T summed in float32, then the epilogue. x [T, K] and w [N, K], both float16 or both bfloat16.

    none: y [T, N]. residual_add: residual + y * 2**shift, float32 [T, N], in place where the residual is donated or
    dies here: x may be a SiLU product that was shifted the other way.
    silu_product: w holds N/2 gate rows, then N/2 up rows; silu(gate) * up * 2**-shift, [T, N/2].
    out_dtype is x's where it is not given (float32 for residual_add); float16 is clamped to finite values.

    Raises:
        ValueError: operands do not fit together.
        NotImplementedError: the kernel cannot cut this shape (T and K must be multiples of 64).
    """
    if epilogue not in EPILOGUES:
        raise ValueError(f"epilogue={epilogue!r} does not exist; there are: {', '.join(EPILOGUES)}")
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[1] or x.dtype != w.dtype or x.dtype.itemsize != 2:
        raise ValueError(
            f"x {x.dtype}{list(x.shape)} and w {w.dtype}{list(w.shape)} are no [T, K] and [N, K] of one type"
        )
    _check_epilogue(x.shape[0], w.shape[0], epilogue, residual, shift)
    dtype = jnp.dtype(jnp.float32 if epilogue == "residual_add" else out_dtype or x.dtype)
    run = choose(impl, {"reference": reference.matmul, "mosaic": _mosaic})
    return run(x, w, epilogue=epilogue, residual=residual, out_dtype=dtype, shift=shift)


def packed_matmul(
    x: jax.Array,
    matrix: PackedMatrix,
    layer: jax.Array,
    *,
    epilogue: Epilogue = "none",
    residual: jax.Array | None = None,
    out_dtype: DTypeLike | None = None,
    shift: int = 0,
    impl: Impl = "auto",
) -> jax.Array:
    """`matmul` with w = matrix[layer], layer int32 [1]; x is rounded to the format's 16-bit type.

    The same bits where rows have no scale. Where they have one (fp8_row, nvfp4) it multiplies the sums, since weights
    without it are exact in 16 bits.

    Raises:
        ValueError: operands do not fit together.
        NotImplementedError: the kernel cannot cut this shape (T must be a multiple of 64, N of 64).
    """
    x = x.astype(jnp.bfloat16 if matrix.format == "bf16" else jnp.float16)
    if epilogue not in EPILOGUES:
        raise ValueError(f"epilogue={epilogue!r} does not exist; there are: {', '.join(EPILOGUES)}")
    if x.ndim != 2 or x.shape[1] != matrix.k:
        raise ValueError(f"x {list(x.shape)} is no [T, {matrix.k}]")
    _check_epilogue(x.shape[0], matrix.n, epilogue, residual, shift)
    dtype = jnp.dtype(jnp.float32 if epilogue == "residual_add" else out_dtype or x.dtype)
    run = choose(impl, {"reference": _unpacked_reference, "mosaic": _packed_mosaic})
    return run(x, matrix, layer, epilogue=epilogue, residual=residual, out_dtype=dtype, shift=shift)


def dequantise(
    matrix: PackedMatrix, layer: jax.Array, dtype: DTypeLike | None = None, *, impl: Impl = "auto"
) -> jax.Array:
    """Layer `layer` (int32 [1]) of a packed stack as [N, K]: bfloat16 for "bf16", else float16, unless `dtype` says."""
    wanted = jnp.dtype(dtype or (jnp.bfloat16 if matrix.format == "bf16" else jnp.float16))
    return choose(impl, {"reference": _unpack, "triton": _triton})(matrix, layer, wanted)


def _check_epilogue(t: int, n: int, epilogue: Epilogue, residual: jax.Array | None, shift: int) -> None:
    if (residual is None) == (epilogue == "residual_add"):
        raise ValueError("residual belongs to epilogue='residual_add' and to no other")
    if residual is not None and (residual.shape, residual.dtype) != ((t, n), jnp.float32):
        raise ValueError(f"residual must be float32 [{t}, {n}]")
    if shift and epilogue == "none":
        raise ValueError("shift belongs to the epilogues silu_product and residual_add")


def _packed_mosaic(
    x: jax.Array,
    matrix: PackedMatrix,
    layer: jax.Array,
    *,
    epilogue: Epilogue,
    residual: jax.Array | None,
    out_dtype: DTypeLike,
    shift: int,
) -> jax.Array:
    from . import packed  # here, because on jax 0.10 that module needs a package that the CPU does not

    options = {"epilogue": epilogue, "residual": residual, "out_dtype": out_dtype, "shift": shift}
    if x.shape[0] >= UNPACK_FROM_TOKENS and matrix.row_scales is None:
        return _mosaic(x, _triton(matrix, layer, x.dtype), **options)  # type: ignore[arg-type]
    gated, out_bytes = epilogue == "silu_product", jnp.dtype(out_dtype).itemsize
    tiles = packed_tiles_for(packed.shape_of(matrix, gated=gated, out_bytes=out_bytes), x.shape[0])
    return packed.matmul(x, matrix, layer, tiles=tiles, **options)  # type: ignore[arg-type]


def _unpacked_reference(x: jax.Array, matrix: PackedMatrix, layer: jax.Array, **options: Any) -> jax.Array:
    if matrix.row_scales is None:
        return reference.matmul(x, _unpack(matrix, layer, x.dtype), **options)
    alike = dataclasses.replace(matrix, row_scales=jnp.ones_like(matrix.row_scales))
    row_scales = lax.dynamic_index_in_dim(matrix.row_scales, layer[0], keepdims=False)
    return reference.matmul(x, _unpack(alike, layer, x.dtype), row_scales=row_scales, **options)


def _mosaic(
    x: jax.Array, w: jax.Array, *, epilogue: Epilogue, residual: jax.Array | None, out_dtype: DTypeLike, shift: int
) -> jax.Array:
    from . import mosaic  # here, because on jax 0.10 that module needs a package that the CPU does not

    gated, out_bytes = epilogue == "silu_product", jnp.dtype(out_dtype).itemsize
    tiles = tiles_for(x.shape[0], w.shape[0], x.shape[1], gated=gated, out_bytes=out_bytes)
    return mosaic.matmul(x, w, epilogue=epilogue, residual=residual, out_dtype=out_dtype, shift=shift, tiles=tiles)


def _triton(matrix: PackedMatrix, layer: jax.Array, dtype: DTypeLike) -> jax.Array:
    from . import dequantise_triton

    return dequantise_triton.dequantise(matrix, layer, dtype)


def _unpack(matrix: PackedMatrix, layer: jax.Array, dtype: DTypeLike) -> jax.Array:
    from kernels_pallas.quant_matmul import unpack_matrix

    return unpack_matrix(matrix, layer, dtype)
