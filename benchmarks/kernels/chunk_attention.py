"""Prompt attention on the GPU: error against float64, then TFLOP/s by chunk, context and KV format, and the append.

    python -m benchmarks.kernels.chunk_attention check
    python -m benchmarks.kernels.chunk_attention time 'int8 rows=128,warps=8,stages=2' ...

A timing case is a KV format and fields of `ChunkTuning` (none: the tuned ones). Layers run in a chain of eight, each
one's result is the next one's query, in one jitted call; best of three. Work is counted as 4 * heads * width for each
key that a row sees. JSON goes to $JOB_OUT or $OUT when one is set.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.kernels.paged_attention import HEADS, QUERIES, WIDTH, noise_pool, read_ceiling, say
from kernels_pallas.chunk_attention import triton
from kernels_pallas.chunk_attention.tuning import TUNING, ChunkTuning
from kernels_pallas.kv_cache import KvPool, reference, zero_pool
from kernels_pallas.kv_cache import triton as append
from kernels_pallas.kv_cache.formats import storage_format

LAYERS = 8
CHUNKS = ((2048, 0), (8192, 0), (2048, 63488), (256, 65280), (64, 65472))
"""(tokens, start) of what is timed."""
POOL_PAGES = 1100
LAYER = np.ones(1, np.int32)
WORKSPACE = int(os.environ.get("WORKSPACE_MIB", "256")) << 20


def check(name: str, tuning: ChunkTuning) -> None:
    """Errors of sampled rows, bits by how a prompt is cut, bits of the append against the reference."""
    rng = np.random.default_rng(5)
    tokens, table = 1024, rng.permutation(40)[:20].astype(np.int32)
    key, value = rng.standard_normal((2, tokens, HEADS, WIDTH)).astype(np.float32)
    value *= np.exp(rng.standard_normal((tokens, HEADS, 1)))
    dtype = jnp.bfloat16 if name == "bf16" else jnp.float16
    query = jnp.asarray(rng.standard_normal((tokens, QUERIES, WIDTH)), dtype)
    empty = jax.jit(lambda: zero_pool(name, layers=2, pages=40, heads=HEADS, width=WIDTH))()
    put = jax.jit(append.append_chunk)
    pool = put(put(empty, LAYER, key[:448], value[:448], table, 0, 421), LAYER, key[421:], value[421:], table, 421, 579)
    wanted = jax.jit(reference.append_chunk)(empty, LAYER, key, value, table, 0, 1000)
    gaps = [
        np.count_nonzero(np.float32(a) != np.float32(b)) for a, b in zip(pool.arrays(), wanted.arrays(), strict=True)
    ]

    attend = jax.jit(triton.attend_chunk, static_argnames=("tuning", "split_workspace_bytes"))
    forms = []
    for segment, workspace in ((8192, 0), (256, 0), (256, 1 << 30)):
        cut = attrs.evolve(tuning, segment_tokens=segment)
        arguments = {"tuning": cut, "split_workspace_bytes": workspace}
        forms.append(np.asarray(attend(query[:640], pool, LAYER, table, 0, 630, **arguments)))
    walked = np.array_equal(forms[1][:630], forms[2][:630])
    gap = np.abs(np.float32(forms[0]) - np.float32(forms[1]))[:630].max()
    say(f"check {name}: walked = split {walked}; largest difference to one softmax {gap:.1e}")
    arguments = {"tuning": tuning, "split_workspace_bytes": WORKSPACE}
    whole = np.asarray(attend(query, pool, LAYER, table, 0, 1000, **arguments))
    keys, values = (np.float64(x) for x in reference.read_lane(pool, jnp.asarray(LAYER), jnp.asarray(table)))
    errors = []
    for row in (0, 1, 63, 64, 127, 128, 500, 999):
        own = np.float64(query[row]).reshape(HEADS, -1, WIDTH)
        scores = np.einsum("kgd,nkd->kgn", own, keys[: row + 1]) / WIDTH**0.5
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        exact = np.einsum("kgn,nkd->kgd", shares / shares.sum(-1, keepdims=True), values[: row + 1])
        errors.append(np.abs(exact.reshape(QUERIES, WIDTH) - np.float64(whole[row])).max() / np.abs(exact).max())
    cuts = []
    for start, size in ((0, 64), (64, 128), (192, 192), (384, 512), (896, 128)):
        part = attend(query[start : start + size], pool, LAYER, table, start, min(size, 1000 - start), **arguments)
        cuts.append(np.array_equal(np.asarray(part)[: 1000 - start], whole[start : min(start + size, 1000)]))
    say(
        f"check {name} {tuning}: error {max(errors):.2e}; same bits however cut {cuts}; rest finite "
        f"{np.isfinite(np.float32(whole)).all()}; appended != reference {gaps}"
    )


def work(tokens: int, start: int) -> float:
    """Floating-point operations of a chunk of one layer."""
    return 4.0 * QUERIES * WIDTH * (tokens * start + tokens * (tokens + 1) / 2)


def chain(tuning: ChunkTuning) -> Callable[..., jax.Array]:
    """Eight layers, each fed with the one before it."""

    options = {"tuning": tuning, "split_workspace_bytes": WORKSPACE}

    def run(query: jax.Array, pool: KvPool, table: jax.Array, start: jax.Array, count: jax.Array) -> jax.Array:
        for layer in range(LAYERS):
            query = triton.attend_chunk(query, pool, jnp.array([layer], jnp.int32), table, start, count, **options)
        return query

    return jax.jit(run)


def seconds(call: Callable[[], jax.Array], times: int = 3) -> float:
    """Best time of a call that returns an array."""
    call().block_until_ready()
    best = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        call().block_until_ready()
        best = min(best, time.perf_counter() - started)
    return best


def append_layers(pool: KvPool, keys: jax.Array, values: jax.Array, table: jax.Array, start: int) -> KvPool:
    """The append of eight layers."""
    for layer in range(LAYERS):
        pool = append.append_chunk(pool, jnp.array([layer], jnp.int32), keys, values, table, start, keys.shape[0])
    return pool


def time_append(name: str, results: list[dict[str, object]]) -> None:
    """Time of writing 8192 tokens."""
    tokens, pool = 8192, noise_pool(name, POOL_PAGES)
    rows = jnp.ones((tokens, HEADS, WIDTH), jnp.bfloat16)
    table = np.arange(POOL_PAGES, dtype=np.int32)
    run = jax.jit(append_layers, donate_argnums=0, static_argnums=4)

    def call() -> jax.Array:
        nonlocal pool
        pool = run(pool, rows, rows, table, 0)
        return pool.keys

    best = seconds(call) / LAYERS
    moved = 2 * tokens * HEADS * (2 * WIDTH + storage_format(name).row_bytes(WIDTH))
    results.append({"case": f"append {name} {tokens}", "us": best * 1e6, "bytes": moved})
    say(f"time append {name} {tokens} tokens: {best * 1e6:.1f} us {moved / best / 1e12:.2f} TB/s read and written")


def measure(cases: list[str], results: list[dict[str, object]]) -> None:
    """Compile all, then time one after the other."""
    parsed = []
    for case in cases:
        name, *options = case.split()
        changed = {key: int(value) for key, _, value in (o.partition("=") for o in ",".join(options).split(",") if o)}
        fields = {
            field: getattr(TUNING[name], field) for field in (f.name for f in attrs.fields(ChunkTuning))
        } | changed
        parsed.append((name, ChunkTuning(**fields), ",".join(options) or "tuned"))

    def build(job: tuple[tuple[str, ChunkTuning, str], int]) -> object:
        (name, tuning, _), tokens = job
        spec = jax.eval_shape(lambda: zero_pool(name, layers=16, pages=POOL_PAGES, heads=HEADS, width=WIDTH))
        query = jax.ShapeDtypeStruct((tokens, QUERIES, WIDTH), jnp.bfloat16 if name == "bf16" else jnp.float16)
        integer = jax.ShapeDtypeStruct((), jnp.int32)
        try:
            table = jax.ShapeDtypeStruct((POOL_PAGES,), jnp.int32)
            return chain(tuning).lower(query, spec, table, integer, integer).compile()
        except Exception as error:
            return error

    jobs = [(case, tokens) for case in parsed for tokens in sorted({tokens for tokens, _ in CHUNKS})]
    with ThreadPoolExecutor(12) as threads:
        programs = dict(zip(jobs, threads.map(build, jobs), strict=True))
    pool, held, table = None, "", np.random.default_rng(0).permutation(POOL_PAGES).astype(np.int32)
    for name, tuning, options in parsed:
        if held != name:
            pool = None
            pool, held = noise_pool(name, POOL_PAGES), name
        for tokens, start in CHUNKS:
            program = programs[(name, tuning, options), tokens]
            if isinstance(program, Exception):
                say(f"time {name} {options}: {str(program)[:200]}")
                break
            query = jnp.ones((tokens, QUERIES, WIDTH), jnp.bfloat16 if name == "bf16" else jnp.float16)
            arguments = (query, pool, table, np.int32(start), np.int32(tokens))
            best = seconds(lambda program=program, arguments=arguments: program(*arguments)) / LAYERS
            case = f"{name} T={tokens} start={start} {options}"
            results.append({"case": case, "us": best * 1e6, "flops": work(tokens, start)})
            say(f"time {case}: {best * 1e6:9.1f} us {work(tokens, start) / best / 1e12:.0f} TFLOP/s")


def main(arguments_given: list[str]) -> None:
    """See the module."""
    results: list[dict[str, object]] = []
    what, *cases = arguments_given
    if what == "check":
        for name, tuning in TUNING.items():
            check(name, tuning)
    else:
        say(jax.devices()[0].device_kind, "pure read", f"{read_ceiling() / 1e12:.2f} TB/s")
        measure(cases, results)
        for name in TUNING:
            time_append(name, results)
    folder = os.environ.get("JOB_OUT") or os.environ.get("OUT")
    if folder:
        Path(folder, "chunk_attention.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
