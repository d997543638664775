"""The product of few rows straight from packed weights: has it the bits of the large product, and how fast is it?

    python -m benchmarks.kernels.prefill_few_rows

Three questions in this order, because the third has no use without the first two. Do sums keep their bits when operands
change sides? Has the kernel the bits of `matmul(x, dequantise(matrix))`, for every format? How long do both take, in
turns over different layers? Prints a line as soon as it is known.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from benchmarks.kernels.prefill_dequantise import random_planes
from kernels_pallas.arrays import CHUNK, PackedMatrix
from kernels_pallas.prefill_matmul import dequantise, matmul
from kernels_pallas.prefill_matmul.few_rows import few_rows

LAYERS = 8
SHAPES = ((34816, 5120, True), (5120, 17408, False), (16384, 5120, False))


def swapped_operands() -> None:
    """x @ w.T against (w @ x.T).T with the kernel that ran: what the few rows' invariant rests on."""
    for t, n, k in ((64, 5120, 6144), (128, 16384, 5120)):
        x_key, w_key = jax.random.split(jax.random.key(t))
        x = jax.random.normal(x_key, (t, k), jnp.float16)
        w = jax.random.normal(w_key, (n, k), jnp.float16) * jnp.float16(0.02)
        straight = matmul(x, w, out_dtype=jnp.float32, impl="mosaic")
        swapped = matmul(w, x, out_dtype=jnp.float32, impl="mosaic").T
        print(f"operands swapped, T={t} {n} x {k}: equal bits {bool((straight == swapped).all())}", flush=True)


def both(matrix: PackedMatrix, t: int, gated: bool) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
    """The few rows' product and the one through an unpacked copy, as functions of x and the layer, both [T, N]."""
    dtype = jnp.bfloat16 if matrix.format == "bf16" else jnp.float16
    out_dtype, shift = (dtype, 4) if gated else (jnp.float32, 0)

    def packed(x: jax.Array, matrix: PackedMatrix, layer: jax.Array) -> jax.Array:
        return few_rows(x, matrix, layer, gated=gated, out_dtype=out_dtype, shift=shift).T

    def unpacked(x: jax.Array, matrix: PackedMatrix, layer: jax.Array) -> jax.Array:
        dense = dequantise(matrix, layer)
        return matmul(x, dense, epilogue="silu_product" if gated else "none", shift=shift, out_dtype=out_dtype)

    return jax.jit(packed), jax.jit(unpacked)


def mean_s(step: Callable[[int], jax.Array]) -> float:
    """Best of three means over all layers, four times each."""
    best_s = float("inf")
    for _ in range(4):  # the first warms up
        start = time.perf_counter()
        for number in range(4 * LAYERS):
            last = step(number % LAYERS)
        jax.block_until_ready(last)
        best_s = min(best_s, (time.perf_counter() - start) / (4 * LAYERS))
    return best_s


def compare(matrix: PackedMatrix, t: int, gated: bool) -> str:
    """One line: equal bits, and the time of both ways."""
    x = jax.random.normal(jax.random.key(t), (t, matrix.k), jnp.bfloat16 if matrix.format == "bf16" else jnp.float16)
    layers = [jnp.array([layer], jnp.int32) for layer in range(LAYERS)]
    packed, unpacked = both(matrix, t, gated)
    equal = bool((packed(x, matrix, layers[1]) == unpacked(x, matrix, layers[1])).all())
    packed_s = mean_s(lambda at: packed(x, matrix, layers[at]))
    unpacked_s = mean_s(lambda at: unpacked(x, matrix, layers[at]))
    return (
        f"{matrix.format:9} {matrix.n:5} x {matrix.k:5} T={t:3} equal bits {equal} packed {packed_s * 1e6:6.1f} us"
        f" {matrix.bytes_per_layer / packed_s / 1e12:.2f} TB/s, unpacked {unpacked_s * 1e6:6.1f} us"
    )


def main() -> None:
    swapped_operands()
    for (n, k, gated), form in itertools.product(SHAPES, ("q4_g64", *(f for f in CHUNK if f != "q4_g64"))):
        matrix = PackedMatrix(format=form, **random_planes(form, n, k, LAYERS))
        for t in (64, 128):
            print(compare(matrix, t, gated), flush=True)


if __name__ == "__main__":
    main()
