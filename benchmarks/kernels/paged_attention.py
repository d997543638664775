"""Decode attention on the GPU: error against float64, then time of a layer by context length, rows and KV format.

    python -m benchmarks.kernels.paged_attention check
    python -m benchmarks.kernels.paged_attention time 'int8 1 warps=4,stages=3' ...

A timing case is a KV format, a number of rows and fields of `DecodeTuning` (none: the tuned ones). Layers run in chains
of 96 calls over 16 layers of one donated pool, both kernels each, in one jitted call; repeats read other pages, so that
a short context does not sit in the L2 cache. Time is wall time of the chain over its calls, best of three means.
JSON goes to $JOB_OUT or $OUT when one is set.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from kernels_pallas.kv_cache import KvPool, zero_pool
from kernels_pallas.kv_cache.formats import storage_format
from kernels_pallas.kv_cache.reference import append_chunk, read_lane
from kernels_pallas.paged_attention import reference, triton, triton_combine
from kernels_pallas.paged_attention.tuning import TUNING, DecodeTuning

LAYERS, HEADS, QUERIES, WIDTH, HALF = 16, 4, 24, 256, 32
COLUMNS = 2 * (QUERIES + HEADS) * WIDTH
EPS = 1e-6
REPEATS = 6
CONTEXTS = (1024, 16384, 65536)
EDGES = (0, 63, 64, 4095, 4096, 4999, -1, 8191)
TABLE = 128


def say(*words: object) -> None:
    """Print at once: a run may be cut off."""
    print(*words, flush=True)


# ------------------------------------------------------------------ errors against float64


@functools.cache
def known_lanes(name: str) -> tuple[KvPool, np.ndarray]:
    """Two layers of eight lanes, filled up to `EDGES` in layer 1, and their tables [8, 128]."""
    rng = np.random.default_rng(1)
    tables = rng.permutation(len(EDGES) * TABLE).astype(np.int32).reshape(len(EDGES), TABLE)
    pool = jax.jit(lambda: zero_pool(name, layers=2, pages=tables.size, heads=HEADS, width=WIDTH))()
    fill = jax.jit(append_chunk, donate_argnums=0)
    for lane, tokens in enumerate(EDGES):
        key, value = rng.standard_normal((2, TABLE * 64, HEADS, WIDTH)).astype(np.float32)
        value *= np.exp(rng.standard_normal((TABLE * 64, HEADS, 1)))  # scales of values differ from token to token
        pool = fill(pool, jnp.array([1], jnp.int32), key, value, tables[lane], 0, max(tokens, 0))
    return pool, tables


def inputs(rows: slice) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """projected [M, columns], gains (2 x [2, d]) and rotations (2 x [M, 32]) of some of the eight rows."""
    rng = np.random.default_rng(2)
    projected = rng.standard_normal((8, COLUMNS)).astype(np.float32)
    gains = 1 + 0.2 * rng.standard_normal((2, 2, WIDTH)).astype(np.float32)
    angles = rng.uniform(0, 6, (8, HALF))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    return projected[rows], (gains[0], gains[1]), (cos[rows], sin[rows])


@functools.partial(jax.jit, static_argnames=("tuning",))
def _layer(
    projected: jax.Array, pool: KvPool, norms: tuple[jax.Array, jax.Array], *rest: jax.Array, tuning: DecodeTuning
) -> tuple[jax.Array, KvPool]:
    partials, pool = triton.attend_rows(projected, pool, norms, *rest, eps=EPS, tuning=tuning)
    return triton_combine.combine(partials, projected, jnp.float32, tuning=tuning), pool


def expected(rows: slice, lane: int, pool: KvPool, table: np.ndarray) -> np.ndarray:
    """float64 attention of one row over the pool as the kernel left it: [h * d]."""
    projected, gains, rope = (np.float64(x) if isinstance(x, np.ndarray) else x for x in inputs(slice(lane, lane + 1)))
    cut = projected[0, : 2 * QUERIES * WIDTH].reshape(QUERIES, 2, WIDTH)
    query = cut[:, 0] / np.sqrt((cut[:, 0] ** 2).mean(-1, keepdims=True) + EPS) * gains[0][1]
    first, second = query[:, :HALF], query[:, HALF : 2 * HALF]
    cos, sin = np.float64(rope[0]), np.float64(rope[1])
    query = np.concatenate([first * cos - second * sin, second * cos + first * sin, query[:, 2 * HALF :]], axis=-1)
    keys, values = (np.float64(x)[: EDGES[lane] + 1] for x in read_lane(pool, jnp.array([1], jnp.int32), table))
    scores = np.einsum("kgd,nkd->kgn", query.reshape(HEADS, -1, WIDTH), keys) / WIDTH**0.5
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = np.einsum("kgn,nkd->kgd", shares / shares.sum(-1, keepdims=True), values).reshape(QUERIES, WIDTH)
    return (mixed / (1 + np.exp(-cut[:, 1]))).reshape(-1)


def check(name: str, tuning: DecodeTuning) -> None:
    """One line: errors of eight rows, of the appended codes, and whether bits depend on the other rows."""
    pool, tables = known_lanes(name)
    layer = jnp.array([1], jnp.int32)

    def run(rows: slice) -> tuple[np.ndarray, KvPool]:
        projected, gains, rope = inputs(rows)
        positions = np.array(EDGES[rows], np.int32)
        out, after = _layer(projected, pool, gains, layer, tables[rows], positions, *rope, tuning=tuning)
        return np.asarray(out), after

    together, after = run(slice(0, len(EDGES)))
    errors = []
    for lane, tokens in enumerate(EDGES):
        if tokens >= 0:
            wanted = expected(slice(lane, lane + 1), lane, after, tables[lane])
            errors.append(np.abs(together[lane] - wanted).max() / np.abs(wanted).max())
    same = all(np.array_equal(run(slice(lane, lane + 1))[0][0], together[lane]) for lane in range(len(EDGES)))
    same &= np.array_equal(run(slice(3, 6))[0], together[3:6])
    projected, gains, rope = inputs(slice(0, len(EDGES)))
    _, by_reference = jax.jit(reference.attend_rows, static_argnames="eps")(
        projected, pool, gains, layer, tables, np.array(EDGES, np.int32), *rope, eps=EPS
    )
    gaps = [
        np.float64(a).astype(np.float64) - np.float64(b)
        for a, b in zip(after.arrays(), by_reference.arrays(), strict=True)
    ]
    largest = [f"{np.abs(gap).max():.2g} in {np.count_nonzero(gap)}" for gap in gaps]
    padded = not together[EDGES.index(-1)].any()
    say(f"check {name} {tuning}: error {max(errors):.2e} mean {np.mean(errors):.2e}; bits alone = together {same};")
    say(f"      padding zero {padded}; appended - reference (largest, count): {largest}")


def check_lanes(name: str, lane_rows: int, tuning: DecodeTuning) -> None:
    """One line: several rows a lane against the reference, at the borders of pages, some of them padding."""
    pool, tables = known_lanes(name)
    starts = (EDGES[2], EDGES[5])
    positions = np.concatenate([np.arange(start, start + lane_rows) for start in starts]).astype(np.int32)
    positions[-1] = -1
    rng = np.random.default_rng(4)
    projected = rng.standard_normal((positions.size, COLUMNS)).astype(np.float32)
    angles = rng.uniform(0, 6, (positions.size, HALF)).astype(np.float32)
    rest = jax.device_put((np.ones(1, np.int32), tables[[2, 5]], positions, np.cos(angles), np.sin(angles)))
    projected, gains = jax.device_put((projected, inputs(slice(0, 1))[1]))
    got, after = _layer(projected, pool, gains, *rest, tuning=tuning)

    def meant(pool: KvPool) -> tuple[jax.Array, KvPool]:
        partials, pool = reference.attend_rows(projected, pool, gains, *rest, eps=EPS)
        return reference.combine(partials, projected, jnp.float32), pool

    wanted, wanted_pool = jax.jit(meant)(pool)
    error = jnp.abs(got - wanted).max() / jnp.abs(wanted).max()
    changed = [int(jnp.sum(a != b)) for a, b in zip(after.arrays(), wanted_pool.arrays(), strict=True)]
    say(f"check {name} {lane_rows} rows a lane: {error:.2e} to the reference; codes and scales that differ {changed}")


# ------------------------------------------------------------------ time


def noise_pool(name: str, pages: int) -> KvPool:
    """A pool of 16 layers full of numbers of ordinary size."""
    shape = jax.eval_shape(lambda: zero_pool(name, layers=LAYERS, pages=pages, heads=HEADS, width=WIDTH))

    def noise(spec: jax.ShapeDtypeStruct) -> jax.Array:
        if spec.dtype == jnp.float32:
            return jnp.full(spec.shape, 0.01, jnp.float32)
        index = sum(
            jax.lax.broadcasted_iota(jnp.uint32, spec.shape, axis) * np.uint32(f)
            for axis, f in enumerate((40503, 2654435761, 9973, 2246822519, 3266489917))
        )
        index = (index ^ (index >> 13)) * np.uint32(2654435761)
        return (((index >> 20) & 63).astype(jnp.float32) - 31.5).astype(spec.dtype)

    return jax.tree.map(lambda spec: jax.jit(noise, static_argnums=0)(spec), shape)


def chain(tuning: DecodeTuning) -> Callable[..., tuple[jax.Array, KvPool]]:
    """96 layers' attention, one after the other because each writes the pool."""

    def one(
        projected: jax.Array, pool: KvPool, norms: tuple[jax.Array, jax.Array], *rest: jax.Array
    ) -> tuple[jax.Array, KvPool]:
        partials, pool = triton.attend_rows(projected, pool, norms, *rest, eps=EPS, tuning=tuning)
        return triton_combine.combine(partials, projected, jnp.float16, tuning=tuning), pool

    layer_of = jax.jit(one)  # traced and lowered once for the 96 calls

    def run(
        projected: jax.Array,
        pool: KvPool,
        norms: tuple[jax.Array, jax.Array],
        layers: tuple[jax.Array, ...],
        tables: tuple[jax.Array, ...],
        *rest: jax.Array,
    ) -> tuple[jax.Array, KvPool]:
        outs = []
        for repeat in range(REPEATS):
            for layer in range(LAYERS):
                out, pool = layer_of(projected, pool, norms, layers[layer], tables[repeat], *rest)
                outs.append(out[0, 0])  # or XLA would leave out the sum
        return jnp.stack(outs), pool

    return jax.jit(run, donate_argnums=1)


def arguments(rows: int, context: int, pages: int) -> tuple[object, ...]:
    """Arguments of a chain but the pool: every row has its own pages, every repeat others as long as they last."""
    rng = np.random.default_rng(3)
    tables = np.zeros((REPEATS, rows, max(CONTEXTS) // 64), np.int32)
    need = rows * context // 64
    every = rng.permutation(pages).astype(np.int32)
    for repeat in range(REPEATS):
        own = np.resize(np.roll(every, -repeat * need), need)
        tables[repeat, :, : context // 64] = own.reshape(rows, -1)
    projected = rng.standard_normal((rows, COLUMNS)).astype(np.float32)
    norms = (np.ones((LAYERS, WIDTH), np.float32),) * 2
    angles = rng.uniform(0, 6, (rows, HALF)).astype(np.float32)
    positions = np.full(rows, context - 1, np.int32)
    layers = tuple(np.full(1, layer, np.int32) for layer in range(LAYERS))  # indexed here: a slice is a kernel
    return projected, norms, layers, tuple(tables), positions, np.cos(angles), np.sin(angles)


def layer_bytes(name: str, rows: int, context: int) -> int:
    """Bytes of keys, values and scales that one layer reads."""
    return rows * context * HEADS * 2 * storage_format(name).row_bytes(WIDTH)


def parse(case: str) -> tuple[str, int, DecodeTuning, str]:
    """'int8 1 warps=4,stages=3' -> its parts."""
    name, rows, *options = case.split()
    changed = {key: int(value) for key, _, value in (o.partition("=") for o in ",".join(options).split(",") if o)}
    base = TUNING[name]
    fields = {field: getattr(base, field) for field in base.__slots__ if not field.startswith("_")} | changed
    return name, int(rows), DecodeTuning(**fields), ",".join(options)


def measure(cases: list[str], pool_pages: int, contexts: tuple[int, ...], results: list[dict[str, object]]) -> None:
    """Compile all, then time one after the other; formats in the order given, so that one pool is alive at a time."""
    parsed = [parse(case) for case in cases]

    def build(entry: tuple[str, int, DecodeTuning, str]) -> object:
        name, rows, tuning, _ = entry
        spec = jax.eval_shape(lambda: zero_pool(name, layers=LAYERS, pages=pool_pages, heads=HEADS, width=WIDTH))
        projected, *rest = arguments(rows, contexts[0], pool_pages)
        try:
            return chain(tuning).lower(projected, spec, *rest).compile()
        except Exception as error:
            return error

    started = time.perf_counter()
    with ThreadPoolExecutor(12) as threads:
        programs = list(threads.map(build, parsed))
    say(f"compiled {len(cases)} in {time.perf_counter() - started:.1f} s")
    pool, held = None, ""
    for (name, rows, _, options), program in zip(parsed, programs, strict=True):
        if isinstance(program, Exception):
            say(f"time {name} M={rows} {options}: {str(program)[:200]}")
            continue
        if held != name:
            pool = None
            pool, held = noise_pool(name, pool_pages), name
        for context in contexts:
            if rows * context // 64 > pool_pages:
                continue
            projected, *rest = jax.device_put(arguments(rows, context, pool_pages))
            times = []
            for _ in range(4):
                started = time.perf_counter()
                for _ in range(3):
                    out, pool = program(projected, pool, *rest)
                out.block_until_ready()
                times.append((time.perf_counter() - started) / 3 / (REPEATS * LAYERS))
            best, read = min(times[1:]), layer_bytes(name, rows, context)
            case = f"{name} M={rows} n={context:6d} {options or 'tuned'}"
            results.append({"case": case, "us": best * 1e6, "bytes": read})
            say(f"time {case}: {best * 1e6:8.2f} us {read / best / 1e12:.2f} TB/s")
            if "PROFILE" in os.environ:

                def call(program=program, arguments=(projected, *rest)) -> jax.Array:
                    nonlocal pool
                    out, pool = program(arguments[0], pool, *arguments[1:])
                    return out

                say("      kernels, us:", {name[:40]: round(us, 2) for name, us in kernel_times(call).items()})


def kernel_times(call: Callable[[], jax.Array]) -> dict[str, float]:
    """Mean microseconds of each kernel by name, from the profiler."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            call().block_until_ready()
        [trace] = Path(folder).rglob("*.xplane.pb")
        found: dict[str, list[float]] = {}
        for plane in jax.profiler.ProfileData.from_file(str(trace)).planes:
            for line in plane.lines if plane.name.startswith("/device:GPU") else ():
                for event in line.events if line.name.startswith("Stream") else ():
                    found.setdefault(event.name, []).append(event.duration_ns / 1e3)
    return {name: sum(times) / len(times) for name, times in found.items()}


def read_ceiling() -> float:
    """Bytes per second of summing a 4 GB bfloat16 array."""
    data = jnp.zeros((1 << 31,), jnp.bfloat16)
    total = jax.jit(lambda x: jnp.sum(x.astype(jnp.float32)))
    total(data).block_until_ready()
    started = time.perf_counter()
    for _ in range(5):
        out = total(data)
    out.block_until_ready()
    return 5 * data.nbytes / (time.perf_counter() - started)


def main(arguments_given: list[str]) -> None:
    """See the module."""
    results: list[dict[str, object]] = []
    what, *cases = arguments_given
    say(jax.devices()[0].device_kind, "pure read", f"{read_ceiling() / 1e12:.2f} TB/s")
    if what == "check":
        for name in TUNING:
            for case in cases or [""]:
                check(name, parse(f"{name} 1 {case}")[2])
            for lane_rows in (3, 8, 16):
                check_lanes(name, lane_rows, TUNING[name])
    else:
        pages = int(os.environ.get("POOL_PAGES", "4500"))
        contexts = tuple(int(n) for n in os.environ.get("CONTEXTS", "1024,16384,65536").split(","))
        measure(cases, pages, contexts, results)
    folder = os.environ.get("JOB_OUT") or os.environ.get("OUT")
    if folder:
        Path(folder, "paged_attention.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
