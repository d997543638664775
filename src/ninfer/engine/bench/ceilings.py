"""What the default device gives to programs that do nothing else: a pure read, and a plain bfloat16 product.

Shares of the benchmark are shares of these. The read is the best of several ways to sum one array, since a ceiling
that is too low would flatter. Knows no model.
"""

import time
from collections.abc import Callable
from functools import partial

import attrs
import jax
import jax.numpy as jnp

from ninfer.engine.bench.report import Ceilings, Spread


@attrs.frozen(kw_only=True)
class Sizes:
    """What is read and multiplied, and how often."""

    read_shape: tuple[int, int]
    gemm_shape: tuple[int, int, int]
    """M, K, N"""
    calls: int
    """Chained in a run, waited for once."""
    runs: int


ON_ACCELERATOR = Sizes(read_shape=(31_250, 65_536), gemm_shape=(2048, 5120, 17_408), calls=20, runs=5)
"""4.1 GB, and the feed-forward of the 27B model."""

ON_CPU = Sizes(read_shape=(512, 65_536), gemm_shape=(64, 512, 1024), calls=3, runs=3)


def measure_ceilings(sizes: Sizes | None = None) -> Ceilings:
    """Measure; takes a second or two, and 4 GB of an accelerator, which are free again afterwards."""
    if sizes is None:
        sizes = ON_CPU if jax.devices()[0].platform == "cpu" else ON_ACCELERATOR
    read_s = _read(sizes)
    rows, depth, columns = sizes.gemm_shape
    left = jax.random.normal(jax.random.key(1), (rows, depth), jnp.bfloat16)
    right = jax.random.normal(jax.random.key(2), (depth, columns), jnp.bfloat16)
    product = jax.jit(lambda a, b: jnp.dot(a, b))
    return Ceilings(
        read_bytes=2 * sizes.read_shape[0] * sizes.read_shape[1],
        read_s=read_s,
        gemm_shape=sizes.gemm_shape,
        gemm_s=_timed(lambda: product(left, right), sizes),
    )


def _read(sizes: Sizes) -> Spread:
    values = jax.jit(lambda: jnp.ones(sizes.read_shape, jnp.bfloat16))()
    ways = (
        jax.jit(lambda x: jnp.sum(x, dtype=jnp.float32)),
        jax.jit(lambda x: jnp.sum(x, axis=1, dtype=jnp.float32)),
        jax.jit(lambda x: jnp.max(x)),
    )
    return min((_timed(partial(way, values), sizes) for way in ways), key=lambda spread: spread.median)


def _timed(call: Callable[[], jax.Array], sizes: Sizes) -> Spread:
    """Seconds of one call, as the mean over a chain of them."""
    jax.block_until_ready(call())
    times = []
    for _ in range(sizes.runs):
        begin_s = time.perf_counter()
        for _ in range(sizes.calls):
            last = call()
        jax.block_until_ready(last)
        times.append((time.perf_counter() - begin_s) / sizes.calls)
    return Spread(tuple(times))
