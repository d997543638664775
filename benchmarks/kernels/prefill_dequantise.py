"""GB/s of the dequantisation by format, beside a plain copy of the same run. Part of `prefill_matmul`'s bench.

Random bits as planes: whatever they mean, moving them costs the same. Every call reads another layer, so nothing is
read from a cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from kernels_pallas.arrays import CHUNK, PackedMatrix
from kernels_pallas.packing import plane_specs
from kernels_pallas.prefill_matmul import dequantise_triton

N, K, LAYERS = 34816, 5120, 6


FINITE = {
    ("bf16", "codes"): (0x80FF80FF, 0x3C003C00),
    ("fp8_row", "codes"): (0xF7F7F7F7, 0),
    ("nvfp4", "scales"): (0x3737, 0),
    **{(name, "scales"): (0x03FF03FF, 0x20002000) for name in ("int8_g32", "q4_g64", "q5_g64", "q6_g64")},
}
"""Bits to keep and to set so that random bits are small numbers: bfloat16 and float16 between 2**-7 and 2**-6."""


def random_planes(matrix_format: str, n: int, k: int, layers: int) -> dict[str, jax.Array]:
    """A stack's planes of random bits that are finite numbers."""
    planes = {}
    for number, (name, spec) in enumerate(plane_specs(matrix_format, n, k).items()):
        key, shape = jax.random.key(number), (layers, *spec.shape)
        if spec.dtype.kind == "f":
            planes[name] = jax.random.uniform(key, shape, spec.dtype) / 1024
            continue
        dtype = jnp.dtype(spec.dtype.name)
        kept, added = FINITE.get((matrix_format, name), (jnp.iinfo(dtype).max, 0))
        planes[name] = jax.random.bits(key, shape, dtype) & dtype.type(kept) | dtype.type(added)
    return planes


def rate(step: Callable[[jax.Array], jax.Array], moved_bytes: int) -> float:
    """GB/s: best of three means over calls that take the layers in turn."""
    layers = [jnp.array([layer], jnp.int32) for layer in range(LAYERS)]
    best_s = float("inf")
    for _ in range(4):  # the first warms up
        start = time.perf_counter()
        for number in range(2 * LAYERS):
            last = step(layers[number % LAYERS])
        jax.block_until_ready(last)
        best_s = min(best_s, (time.perf_counter() - start) / (2 * LAYERS))
    return moved_bytes / best_s / 1e9


def run(found: list[dict[str, object]]) -> None:
    """One line a format: the kernel's bytes read and written a second, and XLA's for the reference."""
    source = jnp.zeros((N, K), jnp.float16)
    copy = jax.jit(lambda a, layer: a + layer.astype(jnp.float16))
    copied = rate(lambda layer: copy(source, layer), 2 * source.nbytes)
    print(f"dequantise copy {copied:7.0f} GB/s", flush=True)
    for matrix_format in CHUNK:
        stack = jax.block_until_ready(PackedMatrix(format=matrix_format, **random_planes(matrix_format, N, K, LAYERS)))
        dtype = jnp.bfloat16 if matrix_format == "bf16" else jnp.float16
        moved = stack.bytes_per_layer + 2 * N * K
        kernel = jax.jit(lambda m, layer, dtype=dtype: dequantise_triton.dequantise(m, layer, dtype))
        got = rate(lambda layer, kernel=kernel, stack=stack: kernel(stack, layer), moved)
        print(f"dequantise {matrix_format:9} {got:7.0f} GB/s, {got / copied:.0%} of copy", flush=True)
        found.append({"dequantise": matrix_format, "gb_s": got, "copy_gb_s": copied})
