"""The delta-net step on the GPU: error against float64, then time by rows.

    python -m benchmarks.kernels.gdn_step check
    python -m benchmarks.kernels.gdn_step time 1 8 '1 pair' ...

Shapes are those of the 27B model. A timed call runs the step of all 48 layers one after the other, so every state is
read from memory; with "pair", each step is followed by the product that comes next (q4). Bytes are those of the state,
read and written. JSON goes to $JOB_OUT or $OUT when one is set.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.profiler import ProfileData

from kernels_pallas.arrays import Activation, PackedMatrix
from kernels_pallas.gdn_step import GdnState, GdnWeights
from kernels_pallas.gdn_step.specs import HIDDEN_27B, LAYERS_27B, SIZES_27B, state_27b
from kernels_pallas.gdn_step.triton import gdn_step_triton
from kernels_pallas.quant_matmul import project_residual
from ninfer.engine.programs.stacked.random import random_packed

EPS, SLOTS, SHIFT = 1e-6, 9, 6
REPEATS = 5
SIZES = SIZES_27B


def say(*words: object) -> None:
    """Print at once: a run may be cut off."""
    print(*words, flush=True)


def random_layers(layers: int, slots: int, rng: np.random.Generator) -> tuple[GdnState, GdnWeights]:
    """States in use and weights with the spread of real ones; tiled over the layers from a few random ones."""

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape), jnp.float32)

    def stack(one: jax.Array) -> jax.Array:
        return jnp.broadcast_to(one, (layers, *one.shape[1:])).copy()

    heads = SIZES.value_heads
    state = GdnState(
        recurrent=stack(0.1 * normal(1, slots, heads, SIZES.key_dim, SIZES.value_dim)),
        conv=stack(normal(1, slots, 4, SIZES.channels)),
    )
    weights = GdnWeights(
        ab=stack((normal(1, 2 * heads, HIDDEN_27B) / HIDDEN_27B**0.5).astype(jnp.bfloat16)),
        conv=stack(0.5 * normal(1, 4, SIZES.channels)),
        a_log=jnp.log(jnp.asarray(rng.uniform(0.2, 4.0, (layers, heads)), jnp.float32)),
        dt_bias=normal(layers, heads) - 2.0,
        norm=1.0 + 0.1 * normal(layers, SIZES.value_dim),
    )
    return state, weights


def random_rows(rows: int, rng: np.random.Generator) -> tuple[jax.Array, Activation]:
    """What a projection leaves, and its input."""
    residual = 3.0 * rng.standard_normal((rows, HIDDEN_27B))
    x = Activation(
        values=jnp.asarray(residual * 2.0**-SHIFT, jnp.float16),
        squares=jnp.asarray((residual**2).reshape(rows, -1, 16).sum(-1), jnp.float32),
        shift=SHIFT,
        eps=EPS,
    )
    return jnp.asarray(rng.standard_normal((rows, SIZES.channels + SIZES.values)), jnp.float32), x


def expected(
    projected: np.ndarray, x: Activation, state: GdnState, weights: GdnWeights, layer: int, slot: int, position: int
) -> tuple[np.ndarray, np.ndarray]:
    """float64, one row: output [Hv dv], state [Hv, dk, dv]."""
    own = {
        field.name: np.asarray(getattr(weights, field.name)[layer], np.float64) for field in dataclasses.fields(weights)
    }
    ring = np.asarray(state.conv[layer, slot], np.float64)
    row = np.asarray(projected, np.float64)
    mixed, z = row[: SIZES.channels], row[SIZES.channels :]
    inputs = [ring[(position - back) % 4] * (position >= back) for back in (3, 2, 1)] + [mixed]
    total = sum(one * own["conv"][tap] for tap, one in enumerate(inputs))
    convolved = total / (1 + np.exp(-total))
    assert x.squares is not None
    scale = 2.0**x.shift / np.sqrt(np.asarray(x.squares[0], np.float64).sum() / HIDDEN_27B + EPS)
    a, b = np.split(own["ab"] @ np.asarray(x.values[0], np.float64) * scale, 2)
    decay = np.exp(-np.exp(own["a_log"]) * np.logaddexp(0, a + own["dt_bias"]))
    beta = 1 / (1 + np.exp(-b))

    def heads(part: np.ndarray) -> np.ndarray:
        part = part.reshape(SIZES.key_heads, SIZES.key_dim)
        return np.repeat(part / np.sqrt((part**2).sum(-1, keepdims=True) + 1e-6), SIZES.share, axis=0)

    query = heads(convolved[: SIZES.keys]) * SIZES.key_dim**-0.5
    key = heads(convolved[SIZES.keys : 2 * SIZES.keys])
    value = convolved[2 * SIZES.keys :].reshape(SIZES.value_heads, SIZES.value_dim)
    matrix = np.asarray(state.recurrent[layer, slot], np.float64) * (position > 0) * decay[:, None, None]
    change = beta[:, None] * (value - np.einsum("hkv,hk->hv", matrix, key))
    matrix = matrix + key[:, :, None] * change[:, None, :]
    out = np.einsum("hkv,hk->hv", matrix, query)
    z = z.reshape(out.shape)
    normed = out / np.sqrt((out**2).mean(-1, keepdims=True) + EPS) * own["norm"] * z / (1 + np.exp(-z))
    return normed.ravel(), matrix


def ints(*values: int) -> jax.Array:
    """int32 [n]."""
    return jnp.asarray(values, jnp.int32)


def check() -> list[dict[str, object]]:
    """Errors of 8 rows with padding, rings at every turn and a first token; bits against the same rows alone."""
    rng = np.random.default_rng(0)
    state, weights = random_layers(2, SLOTS, rng)
    projected, x = random_rows(8, rng)
    slots, positions = (3, 0, -1, 8, 1, 2, 7, 5), (5, 0, 9, 1, 2, 4096, 3, 7)
    truth = {
        row: expected(np.asarray(projected[row]), part(x, row), state, weights, 1, slots[row], positions[row])
        for row in range(8)
        if slots[row] >= 0
    }
    run = jax.jit(functools.partial(gdn_step_triton, eps=EPS, out_dtype=jnp.dtype("float32")))
    out, after = run(projected, x, state, weights, ints(1), ints(*slots), ints(*positions))
    out_error = max(relative(out.values[row], good[0]) for row, good in truth.items())
    state_error = max(relative(after.recurrent[1, slots[row]], good[1]) for row, good in truth.items())
    same = True
    for row in (0, 3, 7):
        alone, last = run(
            projected[row : row + 1], part(x, row), state, weights, ints(1), ints(slots[row]), ints(positions[row])
        )
        same &= bool((alone.values[0] == out.values[row]).all())
        same &= bool((last.recurrent[1, slots[row]] == after.recurrent[1, slots[row]]).all())
    conv = np.asarray(state.conv).copy()
    for row in truth:
        conv[1, slots[row], positions[row] % 4] = np.asarray(projected[row, : SIZES.channels])
    untouched = np.ones((2, SLOTS), bool)
    untouched[1, [slot for slot in slots if slot >= 0]] = False
    kept = bool((after.conv == conv).all()) and bool((after.recurrent == state.recurrent)[untouched].all())
    padding = bool((out.values[2] == 0).all())
    good = out_error < 1e-5 and state_error < 1e-5 and same and kept and padding
    say(
        f"{'ok' if good else 'WRONG':6s}out {out_error:.1e} state {state_error:.1e} "
        f"same bits alone: {same}, rest kept: {kept}"
    )
    return [{"out_error": out_error, "state_error": state_error, "same_bits": same, "kept": kept}]


def part(x: Activation, row: int) -> Activation:
    """One row of an activation."""
    one: Activation = jax.tree.map(lambda array: array[row : row + 1], x)
    return one


def relative(got: jax.Array, good: np.ndarray) -> float:
    """Largest error over the largest value."""
    return float(np.abs(np.asarray(got, np.float64) - good).max() / np.abs(good).max())


def all_layers(matrix: PackedMatrix | None):  # type: ignore[no-untyped-def]
    """One step of every layer, the state donated; with a `matrix`, each followed by the product behind it."""

    @jax.jit
    def link(projected, x, state, weights, layer, slots, positions, matrix, residual):  # type: ignore[no-untyped-def]
        out, state = gdn_step_triton(
            projected,
            x,
            state,
            weights,
            layer,
            slots,
            positions,
            eps=EPS,
            out_dtype=jnp.dtype("float16"),
        )
        if matrix is None:
            return state, out.values
        residual, _ = project_residual(
            out,
            matrix,
            layer,
            residual,
            jnp.ones((1, matrix.n), jnp.float32),
            ints(0),
            out_dtype=jnp.float16,
            shift=SHIFT,
            eps=EPS,
        )
        return state, residual

    def many(state, projected, x, weights, slots, positions, matrix, residual):  # type: ignore[no-untyped-def]
        for layer in range(LAYERS_27B):
            state, out = link(projected, x, state, weights, ints(layer), slots, positions, matrix, residual)
            residual = None if matrix is None else out
        return state, out

    return jax.jit(many, donate_argnums=0)


def measure(cases: list[str]) -> list[dict[str, object]]:
    """Time of each 'M' or 'M pair'."""
    rng = np.random.default_rng(1)
    _, weights = random_layers(LAYERS_27B, 1, rng)
    state = state_27b(slots=SLOTS)
    specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
    paired = any("pair" in case for case in cases)
    matrix = random_packed(jax.random.key(0), "q4_g64", LAYERS_27B, HIDDEN_27B, SIZES.values) if paired else None
    work = []
    for case in cases:
        count, _, form = case.partition(" ")
        projected, x = random_rows(int(count), rng)
        rows = (jnp.arange(int(count), dtype=jnp.int32), jnp.arange(int(count), dtype=jnp.int32) + 100)
        behind = (matrix, jnp.zeros((int(count), HIDDEN_27B))) if form == "pair" else (None, None)
        work.append((case, int(count), (projected, x, weights, *rows, *behind)))

    def build(item):  # type: ignore[no-untyped-def]
        given = item[-1]
        return all_layers(given[-2]).lower(specs, *given).compile()

    with ThreadPoolExecutor(8) as pool:
        programs = list(pool.map(build, work))
    found = []
    for (case, count, given), program in zip(work, programs, strict=True):
        state, out = program(state, *given)
        out.block_until_ready()
        times = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            for _ in range(4):
                state, out = program(state, *given)
            out.block_until_ready()
            times.append((time.perf_counter() - begin) / 4 / LAYERS_27B)
        state_bytes = 2 * count * SIZES.value_heads * SIZES.key_dim * SIZES.value_dim * 4
        us = min(times) * 1e6
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                state, out = program(state, *given)
                out.block_until_ready()
            kernel_us = kernel_times(Path(folder), LAYERS_27B).get("gdn_step", 0.0)
        say(
            f"M {case:44s} {us:6.2f} us a layer ({max(times) * 1e6:.2f} worst of {REPEATS}), kernel {kernel_us:.2f}, "
            f"state {state_bytes / us / 1e6:.2f} TB/s"
        )
        row = {"case": case, "us": us, "worst_us": max(times) * 1e6, "kernel_us": kernel_us}
        found.append({**row, "state_bytes": state_bytes})
    return found


def kernel_times(folder: Path, layers: int) -> dict[str, float]:
    """Microseconds a layer of each kernel."""
    (file,) = folder.glob("**/*.xplane.pb")
    took: Counter[str] = Counter()
    for plane in ProfileData.from_file(str(file)).planes:
        if plane.name.startswith("/device:"):
            for line in plane.lines:
                if line.name.startswith("Stream"):
                    for event in line.events:
                        took[event.name] += event.duration_ns / 1e3 / layers
    return dict(took.most_common(8))


def main(arguments: list[str]) -> None:
    """Run one part and leave its rows as JSON."""
    kind, *rest = arguments
    rows = check() if kind == "check" else measure(rest)
    folder = os.environ.get("JOB_OUT") or os.environ.get("OUT")
    if folder:
        Path(folder, f"gdn_step_{kind}.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
