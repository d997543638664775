"""Selection of the best tokens on the GPU: the same bits as XLA's, and the time of both, for sets of options.

    python -m benchmarks.kernels.sampling ['M options' ...]      e.g. '8 block=8192,num_warps=16'

A timed call selects 32 times, from different rows and each time after the last. JSON goes to $JOB_OUT or $OUT.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.kernels.gdn_step import kernel_times
from kernels_pallas.sampling.reference import best_tokens_reference
from kernels_pallas.sampling.triton import best_tokens_triton
from kernels_pallas.sampling.tuning import DEFAULT

VOCABULARY, USED, CANDIDATES, SLOTS, LINKS = 248320, 248077, 20, 9, 32
SIZES = {"used_tokens": USED, "candidates": CANDIDATES}
CASES = [
    "1 ",
    "8 ",
    "1 block=8192",
    "1 block=2048",
    "1 merge_warps=8",
    "1 num_warps=4",
    "8 block=8192",
    "1 xla",
    "8 xla",
]


def say(*words: object) -> None:
    """Print at once: a run may be cut off."""
    print(*words, flush=True)


def random_rows(count: int, seed: int, coarse: bool) -> tuple[jax.Array, ...]:
    """Logits, counts, slots and penalties; coarse logits have many ties."""
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((count, VOCABULARY)).astype(np.float32)
    if coarse:
        logits = np.round(logits) + np.float32(0.0)
    counts = rng.integers(0, 2, (SLOTS, VOCABULARY)).astype(np.int32)
    slots = (np.arange(count) + 1).astype(np.int32)
    penalties = (np.linspace(0, 1.5, count, dtype=np.float32), np.linspace(0, 0.3, count, dtype=np.float32))
    return tuple(map(jnp.asarray, (logits, counts, slots, *penalties)))


def selection(text: str):  # type: ignore[no-untyped-def]
    """What '' or 'block=8192' or 'xla' names."""
    if text == "xla":
        return functools.partial(best_tokens_reference, **SIZES)
    chosen = dataclasses.replace(DEFAULT, **{n: int(v) for n, _, v in (p.partition("=") for p in text.split(",") if p)})
    return functools.partial(best_tokens_triton, **SIZES, options=chosen)


def chain(text: str):  # type: ignore[no-untyped-def]
    """LINKS selections, each for slots that the last one's tokens decide."""

    def many(logits, counts, slots, presence, frequency):  # type: ignore[no-untyped-def]
        for _ in range(LINKS):
            best = selection(text)(logits, counts, slots, presence, frequency)
            slots = jax.lax.rem(best.ids[:, 0], jnp.int32(SLOTS))
        return best

    return jax.jit(many)


def main(cases: list[str]) -> None:
    """Compare, then time."""
    rows: list[dict[str, object]] = []
    for coarse in (False, True):
        given = random_rows(8, 1, coarse)
        expected = jax.jit(selection("xla"))(*given)
        for text in sorted({case.split(" ", 1)[1] for case in cases} - {"xla"}):
            got = jax.jit(selection(text))(*given)
            same = all(bool((left == right).all()) for left, right in zip(got, expected, strict=True))
            say(f"{'ok' if same else 'WRONG':6s}{text:30s} coarse logits: {coarse}")
            rows.append({"options": text, "coarse": coarse, "same": same})
    work = [(case, random_rows(int(case.split()[0]), 2, False)) for case in cases]
    with ThreadPoolExecutor(8) as pool:
        programs = list(pool.map(lambda item: chain(item[0].split(" ", 1)[1]).lower(*item[1]).compile(), work))
    for (case, given), program in zip(work, programs, strict=True):
        jax.block_until_ready(program(*given))
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            jax.block_until_ready([program(*given) for _ in range(4)])
            times.append((time.perf_counter() - begin) / 4 / LINKS * 1e6)
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                jax.block_until_ready(program(*given))
            kernels = kernel_times(Path(folder), LINKS)
        listed = ", ".join(f"{name.split('::')[-1][:30]} {took:.1f}" for name, took in kernels.items())
        say(f"M {case:30s} {min(times):7.2f} us (worst of 5: {max(times):.2f}); kernels {listed}")
        rows.append({"case": case, "us": min(times), "worst_us": max(times), "kernels_us": kernels})
    folder = os.environ.get("JOB_OUT") or os.environ.get("OUT")
    if folder:
        Path(folder, "sampling.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:] or CASES)
