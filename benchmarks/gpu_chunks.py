"""Do a prompt's bits depend on how it is cut? The trunk of the stacked form over one prompt in chunks of several sizes.

    python -m benchmarks.gpu_chunks [--layers 4] [--recipe q4_g64] [--chunks 64,256,1024]

Random weights of the 27B width, made on the device; a whole prompt is fed in chunks of each size from an empty state.
Compares the residual behind the last layer, keys and values, and delta-net states, bit for bit with those of the
largest chunk, and prints the milliseconds of a chunk. Status 1 if anything differs.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import attrs
import jax
import jax.numpy as jnp
import numpy as np

from ninfer.cli.bench_run import model_shape
from ninfer.engine.model.config import TextConfig
from ninfer.engine.programs.stacked import matrix_shapes
from ninfer.engine.programs.stacked.memory import StackedState, zero_stacked_state
from ninfer.engine.programs.stacked.prompt import Chunk, run_chunk
from ninfer.engine.programs.stacked.random import random_stacked
from ninfer.engine.programs.stacked.weights import StackedWeights
from ninfer.engine.types import PAGE_TOKENS

TIMED = 3
Step = jax.stages.Compiled


def feed(step: Step, weights: StackedWeights, state: StackedState, tokens: np.ndarray, size: int):  # type: ignore[no-untyped-def]
    """The prompt in chunks of `size`: residual [T, H], the state, and the seconds of the last chunk."""
    pages = jnp.arange(len(tokens) // PAGE_TOKENS, dtype=jnp.int32)
    rows, took_s = [], 0.0
    for start in range(0, len(tokens), size):
        where = Chunk(slot=jnp.int32(0), pages=pages, start=jnp.int32(start), length=jnp.int32(size))
        begin_s = time.perf_counter()
        residual, state = step(weights, state, where, jnp.asarray(tokens[start : start + size]))
        jax.block_until_ready(residual)
        took_s = time.perf_counter() - begin_s
        rows.append(residual)
    return jnp.concatenate(rows), state, took_s


def shapes_of(tree: object) -> object:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def compiled(config: TextConfig, weights: object, state: object, pages: int, size: int) -> Step:
    scalar = jax.ShapeDtypeStruct((), jnp.int32)
    where = Chunk(slot=scalar, pages=jax.ShapeDtypeStruct((pages,), jnp.int32), start=scalar, length=scalar)
    step = jax.jit(partial(run_chunk, config, "auto"), donate_argnums=1)
    return step.lower(weights, state, where, jax.ShapeDtypeStruct((size,), jnp.int32)).compile()


def differences(found: tuple[jax.Array, StackedState], wanted: tuple[jax.Array, StackedState]) -> dict[str, int]:
    """How many numbers differ, by what they are."""
    (residual, state), (residual_0, state_0) = found, wanted
    pairs = {
        "residual": (residual, residual_0),
        "keys": (state.pool.keys, state_0.pool.keys),
        "values": (state.pool.values, state_0.pool.values),
        "delta": (state.delta.recurrent, state_0.delta.recurrent),
        "ring": (state.delta.conv, state_0.delta.conv),
    }
    return {name: int((a != b).sum()) for name, (a, b) in pairs.items()}


def main(arguments: Sequence[str]) -> int:
    """Compare all sizes with the largest."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_chunks")
    parser.add_argument("--config", default="27b")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--recipe", default="q4_g64")
    parser.add_argument("--kv-dtype", default="int8")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--chunks", default="64,256,1024")
    options = parser.parse_args(arguments)
    shape = model_shape(options.config)
    config = attrs.evolve(shape, layer_types=shape.layer_types[: options.layers], vocab_size=4096)
    sizes = sorted((int(size) for size in options.chunks.split(",")), reverse=True)
    weights = random_stacked(config, dict.fromkeys(matrix_shapes(config), options.recipe).__getitem__)
    pages = options.tokens // PAGE_TOKENS
    fresh = jax.jit(
        partial(zero_stacked_state, config, kv_format=options.kv_dtype, pages=pages, slots=1, table_pages=pages)
    )
    begin_s = time.perf_counter()
    with ThreadPoolExecutor(len(sizes)) as pool:
        build = partial(compiled, config, shapes_of(weights), shapes_of(jax.eval_shape(fresh)), pages)
        steps = dict(zip(sizes, pool.map(build, sizes), strict=True))
    print(f"compiled after {time.perf_counter() - begin_s:.1f} s", flush=True)
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, options.tokens).astype(np.int32)
    wanted, wrong = None, 0
    for size in sizes:
        runs = [feed(steps[size], weights, fresh(), tokens, size) for _ in range(TIMED)]
        residual, state, _ = runs[0]
        wanted = wanted or (residual, state)
        found = differences((residual, state), wanted)
        again = int((runs[-1][0] != residual).sum())
        wrong += any(found.values()) or again > 0
        gap = float(jnp.abs(residual - wanted[0]).max() / jnp.abs(wanted[0]).max())
        took_ms = min(run[2] for run in runs) * 1e3
        print(
            f"{options.recipe} chunks of {size}: differ from {sizes[0]}: {found}, gap {gap:.1e}, from the same again"
            f" {again}; finite {bool(jnp.isfinite(residual).all())}; last chunk {took_ms:.2f} ms",
            flush=True,
        )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
