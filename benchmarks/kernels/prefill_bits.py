"""Which instructions of the tensor cores give which bits: what a second form of the prefill products may use.

    python -m benchmarks.kernels.prefill_bits

One sum over K, float16 products into a float32 accumulator in steps of 16 in rising order, by: wgmma with 64 to 256
columns (mosaic.py), the same with its operands' sides changed, and `mma.sync.m16n8k16` (a Triton kernel with tiles of
16 rows, which have no wgmma). Inputs include very unlike magnitudes, so that truncation inside a step shows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.prefill_matmul import matmul, mosaic
from kernels_pallas.prefill_matmul.tuning import fitted


def _mma_body(x_ref: Any, w_ref: Any, out_ref: Any, *, depth: int) -> None:
    def step(k: Any, total: Any) -> Any:
        x = plt.load(x_ref.at[:, pl.ds(k * depth, depth)])
        w = plt.load(w_ref.at[:, pl.ds(k * depth, depth)])
        product = lax.dot_general(x, w, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
        return total + product

    shape = (x_ref.shape[0], w_ref.shape[0])
    out_ref[...] = lax.fori_loop(0, x_ref.shape[1] // depth, step, jnp.zeros(shape, jnp.float32))


def mma(x: jax.Array, w: jax.Array, *, rows: int = 16, columns: int = 32, depth: int = 64, warps: int = 1) -> jax.Array:
    """x @ w.T, float32 [T, N], by `mma.sync`: tiles of 16 rows are too few for wgmma."""
    (t, k), n = x.shape, w.shape[0]
    out: jax.Array = pl.pallas_call(
        functools.partial(_mma_body, depth=depth),
        grid=(t // rows, n // columns),
        in_specs=[pl.BlockSpec((rows, k), lambda i, j: (i, 0)), pl.BlockSpec((columns, k), lambda i, j: (j, 0))],
        out_specs=pl.BlockSpec((rows, columns), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((t, n), jnp.float32),
        compiler_params=plt.CompilerParams(num_warps=warps, num_stages=2),
        name=f"mma_{rows}_{columns}_{depth}",
    )(x, w)
    return out


def inputs(kind: str, t: int, n: int, k: int) -> tuple[jax.Array, jax.Array]:
    """float16 [t, k] and [n, k]: normal, with exponents from -12 to 3 each, or zero behind 16."""
    keys = jax.random.split(jax.random.key(t + n + k), 4)
    x, w = (jax.random.normal(key, shape, jnp.float32) for key, shape in zip(keys[:2], ((t, k), (n, k)), strict=True))
    if kind == "one step":
        x = jnp.where(jnp.arange(k) < 16, x, 0)
    if kind == "wild":
        x, w = (
            part * 2.0 ** jax.random.randint(key, part.shape, -12, 4)
            for part, key in zip((x, w), keys[2:], strict=True)
        )
    return x.astype(jnp.float16), (w * 0.02).astype(jnp.float16)


def forms(x: jax.Array, w: jax.Array) -> Iterator[tuple[str, jax.Array]]:
    """The same sums by every form, the present one first."""
    whole = functools.partial(matmul, out_dtype=jnp.float32, impl="mosaic")
    yield "wgmma", whole(x, w)
    yield "wgmma swapped", whole(w, x).T
    for rows, columns, shared in ((128, 32, "t"), (128, 256, "t"), (64, 128, "n"), (256, 160, "t")):
        if w.shape[0] % columns == 0:
            tiles = fitted(rows, columns, gated=False, out_bytes=4, shared=shared)
            out = mosaic.matmul(x, w, epilogue="none", residual=None, out_dtype=jnp.float32, shift=0, tiles=tiles)
            yield f"wgmma {rows}x{columns} {shared}", out
    yield "mma 16x32x64", mma(x, w)
    yield "mma 16x32x16", mma(x, w, depth=16)
    yield "mma 32x32x64, 4 warps", mma(x, w, rows=32, warps=4)
    yield "mma swapped", mma(w, x).T


def main() -> None:
    for kind in ("one step", "normal", "wild"):
        for t, n, k in ((64, 1280, 64), (128, 5120, 6144)):
            x, w = inputs(kind, t, n, k)
            first: jax.Array | None = None
            for name, got in forms(x, w):
                first = got if first is None else first
                differ = int((got != first).sum())
                gap = float(jnp.abs(got - first).max() / jnp.abs(first).max())
                print(f"bits {kind} {t}x{n}x{k} {name:24} differ {differ} of {got.size}, gap {gap:.1e}", flush=True)


if __name__ == "__main__":
    main()
